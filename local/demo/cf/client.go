// SPDX-License-Identifier: Apache-2.0

package cf

import "strings"

// client says the same with the cf client itself, where there is one.
func (p *play) client() error {
	if p.CF == "" {
		p.story.Step("The cf client: there is none here")
		p.story.Note("expected cf, version 8 or 9, on the PATH or in CF_CLI; the rest went without it")
		return nil
	}
	p.story.Step("The cf client itself")
	kubeconfig, err := p.kubeconfig("alice")
	if err != nil {
		return err
	}
	env := []string{"CF_HOME=" + p.Dir, "KUBECONFIG=" + kubeconfig, "CF_COLOR=false", "LANG=C"}
	for _, command := range []struct{ line, says string }{
		{"api " + p.api + " --skip-ssl-validation", ""},
		{"auth alice", ""},
		{"target -o " + org + " -s " + space, space},
		{"apps", "web:2/2"},
		{"restart shop", "#0   running"},
		{"restart shop --strategy rolling", "#1   running"},
	} {
		out, err := p.run(env, p.CF, strings.Fields(command.line)...)
		if err := expect(err, strings.Contains(out, command.says), out); err != nil {
			return err
		}
		p.story.Saw("cf %s", command.line)
	}
	return nil
}
