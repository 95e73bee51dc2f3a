// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// StartManager runs a manager in the test's own process, where the race detector sees it, until the test ends or stop is
// called. The setup function registers the controllers; adjust changes options before the manager is made. It knows every
// kind of the repository, serves no metrics, and shows the end of its log if the test fails.
func StartManager(t testing.TB, env *Environment, setup func(manager.Manager) error, adjust ...func(*manager.Options)) (stop func()) {
	t.Helper()
	options := manager.Options{
		Scheme:  env.Client.Scheme(),
		Metrics: server.Options{BindAddress: "0"},
		// Several tests of one process run controllers of the same name.
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	for _, change := range adjust {
		change(&options)
	}
	if options.Logger.GetSink() == nil {
		log := &LogBuffer{}
		log.ShowOnFailure(t, "the manager")
		options.Logger = log.Logger(0)
	}
	mgr, err := manager.New(env.Config, options)
	if err != nil {
		t.Fatalf("make manager: %v", err)
	}
	if err := setup(mgr); err != nil {
		t.Fatalf("set up controllers: %v", err)
	}
	return RunInBackground(t, "the manager", mgr.Start)
}

// RunInBackground runs a function until the test ends or stop is called. Both cancel its context and wait until it
// returns, so that none of its goroutines outlives the test; an error that it returns fails the test.
func RunInBackground(t testing.TB, name string, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	// The test's own context ends before its cleanups, and would end what they still need.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s ended with: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// WithTransport returns the environment as seen through a transport of the test's own, which may count, delay or refuse
// requests. Only what is started with the result goes through it; its Client does not.
func (e *Environment) WithTransport(wrap func(http.RoundTripper) http.RoundTripper) *Environment {
	wrapped := *e
	wrapped.Config = rest.CopyConfig(e.Config)
	wrapped.Config.Wrap(wrap)
	return &wrapped
}

// ImpersonateUser returns a configuration that lets in as another user, with the rights of that user and no more.
func (e *Environment) ImpersonateUser(name string, groups ...string) *rest.Config {
	cfg := rest.CopyConfig(e.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return cfg
}
