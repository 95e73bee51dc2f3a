// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestMain is also the manager that tests run as a process of its own, to kill it.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if os.Getenv(crashKubeconfig) != "" {
		os.Exit(runCrashProcess())
	}
	os.Exit(m.Run())
}
