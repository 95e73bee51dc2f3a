// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// parallel is the number of parallel tests. They mostly wait for clouds and intervals, so it may exceed the number
// of processors.
const parallel = "32"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
