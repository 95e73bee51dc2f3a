// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"strings"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

// useClient does the same with the cf client itself, where there is one.
func (d *appDemo) useClient() error {
	if d.config.CF == "" {
		d.BeginStep("The cf client: there is none here")
		d.AddNote("expected cf, version 8 or 9, on the PATH or in CF_CLI; the rest went without it")
		return nil
	}
	d.BeginStep("The cf client itself")
	kubeconfig, err := d.writeKubeconfig("alice")
	if err != nil {
		return err
	}
	env := []string{"CF_HOME=" + d.config.Dir, "KUBECONFIG=" + kubeconfig, "CF_COLOR=false", "LANG=C"}
	for _, command := range []struct{ line, prints string }{
		{"api " + d.api + " --skip-ssl-validation", ""},
		{"auth alice", ""},
		{"target -o " + org + " -s " + space, space},
		{"apps", "web:2/2"},
		{"restart shop", "#0   running"},
		{"restart shop --strategy rolling", "#1   running"},
	} {
		out, err := d.RunCommand(runner.CommandLine{Program: d.config.CF, Args: strings.Fields(command.line), Env: env, Limit: limit})
		if err := expectThat(err, strings.Contains(out, command.prints), out); err != nil {
			return err
		}
		d.PrintObserved("cf %s", command.line)
	}
	return nil
}
