// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

// FuzzReadList reads lists from a hostile API server, and decodes each item as every kind that Torpor reads.
func FuzzReadList(f *testing.F) {
	for _, body := range []string{
		`{"kind":"NodeList","metadata":{"continue":"x"},"items":[{"metadata":{"name":"n1","uid":"u"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`,
		`{"items":null,"metadata":{}}`, `{"items":[1,"a",null,[]]}`, `{"items":{}}`, `{"metadata":{"continue":1}}`, `[]`, `{"items":[{}`,
		`{"items":[{"metadata":{"name":"p","ownerReferences":[{"kind":"DaemonSet","controller":true}]},"spec":{"nodeName":"n1"}}]}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p := &pageReader{body: strings.NewReader(body)}
		p.decoder = json.NewDecoder(p)
		items := 0
		_, err := p.readList(func(item []byte) error {
			if items++; len(item) > maxItemBytes || !json.Valid(item) {
				t.Errorf("expected valid JSON of at most %d bytes, found %d bytes", maxItemBytes, len(item))
			}
			_, _ = decodeNode(item, nil)
			_, _, _ = decodePod(item)
			_, _ = decodeOperator(item)
			decodeMachine(item)
			return nil
		})
		var list struct{ Items []json.RawMessage }
		if err == nil && strings.Count(body, `"items"`) == 1 && json.Unmarshal([]byte(body), &list) == nil && len(list.Items) != items {
			t.Errorf("%q: expected %d items, found %d", body, len(list.Items), items)
		}
	})
}

// FuzzLoadKubeconfig reads kubeconfigs from Secrets. An accepted kubeconfig runs no program, references no file, and
// does not impersonate another user.
func FuzzLoadKubeconfig(f *testing.F) {
	const head, tail = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: 'https://api.example.com:6443'", "}]}"
	for _, rest := range []string{
		"}}], users: [{name: u, user: {token: t}", ", insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: t}",
		"}}], users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}",
		"}}], users: [{name: u, user: {tokenFile: /etc/passwd}", ", certificate-authority: /etc/passwd}}], users: [{name: u, user: {as: admin, token: t}",
		", proxy-url: 'http://169.254.169.254'}}], users: [{name: u, user: {auth-provider: {name: gcp}}",
	} {
		f.Add(head + rest + tail)
	}
	f.Fuzz(func(t *testing.T, kubeconfig string) {
		cfg, err := Dialer{}.loadKubeconfig([]byte(kubeconfig), hibernation.ServerOverride{})
		if err != nil {
			return
		}
		if cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.BearerTokenFile != "" || cfg.CertFile+cfg.KeyFile+cfg.CAFile != "" ||
			cfg.Impersonate.UserName != "" || cfg.Insecure {
			t.Errorf("expected a configuration without programs, files, other users and unverified servers, found %+v", cfg)
		}
	})
}
