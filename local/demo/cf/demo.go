// SPDX-License-Identifier: Apache-2.0

// Package cf shows how an app is pushed, restarted, rolled and deleted through the CF API: with the requests of curl, and
// with the cf client where there is one. Every line that is printed was observed.
package cf

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	system, org, space = "torpor-system", "the-org", "dev"
	limit              = 2 * time.Minute
)

// Config is what the demo is started with.
type Config struct {
	runner.Config

	// CF is the cf client, empty if there is none.
	CF string
	// ConfigDir is the folder of the manifests.
	ConfigDir string
}

// appDemo is one run of the demo.
type appDemo struct {
	*runner.Runner

	config Config
	// api is the CF API's address; tokens are those of its users, by name.
	api    string
	http   *http.Client
	tokens map[string]string
	// app is the GUID of the app.
	app string
}

// RunDemo shows all of it and stops everything again. It returns nil only if all of it was observed.
func RunDemo(ctx context.Context, c Config) error {
	r, err := runner.NewRunner(ctx, &c.Config, &c.ConfigDir)
	if err != nil {
		return err
	}
	r.Kubeconfig = c.FilePath("hub", "admin.kubeconfig")
	d := &appDemo{Runner: r, config: c, tokens: map[string]string{}}
	return d.RunDemo(runner.Demo{
		Steps: []func() error{
			r.EmptyDir, d.startControlPlane, d.grantRights, d.startTorpor, d.pushApp, d.restartApp, d.restartInOnePatch, d.rollApp,
			d.cancelDeployment, d.refuseAuditor, d.useClient, d.deleteApp,
		},
		Duration: "a minute",
		LastStep: "Stop everything",
		VerifyCleanUp: func() error {
			d.PrintObserved("every process that was started has ended")
			return nil
		},
	})
}

func (d *appDemo) kubectl(args ...string) (string, error) {
	return d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: args, Limit: limit})
}

// awaitObserved polls until something is so, and prints it.
func (d *appDemo) awaitObserved(what string, f func() error) error {
	if err := d.Poll(what, limit, func(context.Context) error { return f() }); err != nil {
		return err
	}
	d.PrintObserved("%s", what)
	return nil
}

// expectThat is the error, or one that shows what was found where something is not so.
func expectThat(err error, holds bool, found string) error {
	if err == nil && !holds {
		err = errors.New("found " + strings.TrimSpace(found))
	}
	return err
}
