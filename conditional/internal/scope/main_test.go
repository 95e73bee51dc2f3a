// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// apiServer is where the one kube-apiserver of these tests is, nil when there is none.
var apiServer *rest.Config

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	env := testenv.NewEnvironment()
	stop := func() error { return nil }
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		cfg, err := env.Start()
		if err != nil {
			panic(err)
		}
		apiServer, stop = cfg, env.Stop
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		if err := stop(); err != nil {
			panic(err)
		}
		os.Exit(code)
	}))
}
