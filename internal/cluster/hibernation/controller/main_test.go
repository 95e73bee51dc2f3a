// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestMain(m *testing.M) {
	testenv.SetParallel(6)
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}
