// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestRealClient runs the commands of the recorded conversations with the real cf client.
func TestRealClient(t *testing.T) {
	binary := os.Getenv("CF_CLI")
	if binary == "" {
		t.Skip("CF_CLI is not set: expected the path of the cf client, version 8 or 9; the conversations in testdata are replayed without it")
	}
	e := shared.Get(t)
	space := e.createSpace(t)
	c := cfCLI{binary: binary, env: e.writeCFHome(t, "alice")}
	c.run(t, "", "api", e.url, "--skip-ssl-validation")
	c.run(t, "", "auth", "alice")
	for _, step := range []struct{ says, command string }{
		{"the-org", "orgs"},
		{"", "target -o the-org"},
		{"dev-" + space, "spaces"},
		{"dev-" + space, "target -o the-org -s dev-" + space},
		{"unlimited", "org the-org"},
		{"the-org", "space dev-" + space},
		{"#1   running", "push shop --docker-image shop:1 -i 2 -m 64M"},
		{"web:2/2", "apps"},
		{"#1   running", "app shop"},
		{"#1   running", "restart shop"},
		{"OK", "stop shop"},
		{"#1   down", "app shop"},
		{"#0   running", "start shop"},
		{"#2   running", "scale shop -i 3"},
		{"#2   running", "restart shop --strategy rolling"},
		{"OK", "set-env shop COLOUR red"},
		{"COLOUR:", "env shop"},
		{"shop", "events shop"},
		{"", "logs shop --recent"},
		{"#0   running", "restage shop"},
		{"OK", "delete shop -f"},
		{"No apps found", "apps"},
	} {
		c.run(t, step.says, strings.Fields(step.command)...)
	}
}

type cfCLI struct {
	binary string
	env    []string
}

// run runs a command and expects exit code 0 and a text in its output.
func (c cfCLI) run(t *testing.T, says string, args ...string) {
	t.Helper()
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = append(os.Environ(), c.env...)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("cf %s: %s", strings.Join(args, " "), time.Since(begin).Round(time.Millisecond))
	if err != nil || !strings.Contains(string(out), says) {
		t.Errorf("cf %s: %v, want %q in:\n%s", strings.Join(args, " "), err, says, out)
	}
}

// writeCFHome writes a user's kubeconfig. It returns the environment variables that point the client to this kubeconfig
// and to its own settings.
func (e *testEnv) writeCFHome(t *testing.T, user string) []string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData}
	kubeconfig.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: e.requestToken(t, system, user)}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: user}
	kubeconfig.CurrentContext = "c"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	return []string{"CF_HOME=" + dir, "KUBECONFIG=" + file, "CF_COLOR=false", "LANG=C"}
}
