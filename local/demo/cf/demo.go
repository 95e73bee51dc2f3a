// SPDX-License-Identifier: Apache-2.0

// Package cf shows how an app is pushed, restarted, rolled and deleted through the CF API: with the requests of curl, and
// with the cf client where there is one. Every line that is printed was observed.
package cf

import (
	"context"
	"crypto/tls"
	_ "embed" // The manifest is a file, as an admin's is.
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

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

func expectThat(err error, holds bool, found string) error {
	if err == nil && !holds {
		err = errors.New("found " + strings.TrimSpace(found))
	}
	return err
}

//go:embed people.yaml
var people string

func (d *appDemo) startControlPlane() error {
	d.BeginStep("A real control plane, and a hollow node whose Pods are said to run")
	if _, err := d.StartProgram("hub", d.config.Local, "control-plane", "--dir", d.config.FilePath("hub")); err != nil {
		return err
	}
	err := d.Poll("the API server", limit, func(context.Context) error {
		_, err := d.kubectl("get", "--raw", "/readyz")
		return err
	})
	if err != nil {
		return err
	}
	if _, err := d.StartProgram("node", d.config.Local, "node", "--name", "node-1", "--dir", d.config.FilePath("node"), "--bootstrap-kubeconfig", d.Kubeconfig); err != nil {
		return err
	}
	return d.awaitObserved("the node is ready", func() error {
		out, err := d.kubectl("get", "nodes", "--no-headers")
		return expectThat(err, strings.Contains(out, " Ready "), out)
	})
}

func (d *appDemo) grantRights() error {
	d.BeginStep("An admin installs the kinds and gives rights")
	if err := os.WriteFile(d.config.FilePath("people.yaml"), []byte(people), 0o600); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(d.config.ConfigDir, "crd")},
		{"apply", "-f", d.config.FilePath("people.yaml")},
		{"apply", "-k", filepath.Join(d.config.ConfigDir, "rbac", "cf")},
		{"-n", space, "create", "rolebinding", "alice", "--clusterrole=torpor-space-developer", "--serviceaccount=" + system + ":alice"},
		{"-n", space, "create", "rolebinding", "bob", "--clusterrole=torpor-space-auditor", "--serviceaccount=" + system + ":bob"},
	} {
		if _, err := d.kubectl(args...); err != nil {
			return err
		}
	}
	for _, name := range []string{"alice", "bob", "torpor-cf-api"} {
		token, err := d.kubectl("-n", system, "create", "token", name)
		if err != nil {
			return err
		}
		d.tokens[name] = token
	}
	d.PrintObserved("alice develops in the space %s, bob looks on", space)
	return nil
}

func (d *appDemo) startTorpor() error {
	d.BeginStep("torpor manager, which counts revisions at admission, and torpor cf-api, which has no rights but to look")
	addresses, err := runner.FindFreeAddresses(d.Context, 3)
	if err != nil {
		return err
	}
	if _, err := d.kubectl("apply", "-f", filepath.Join(d.config.ConfigDir, "webhook", "manifests.yaml")); err != nil {
		return err
	}
	// Admission is pointed at this machine: the Service of the manifest has no Pods here.
	for kind, path := range map[string]string{"mutatingwebhookconfiguration": "/mutate-cfapps", "validatingwebhookconfiguration": "/validate-cfapps"} {
		patch := fmt.Sprintf(`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://%s%s"}]`, addresses[0], path)
		if _, err := d.kubectl("patch", kind, "torpor", "--type=json", "-p", patch); err != nil {
			return err
		}
	}
	if _, err := d.StartProgram("manager", d.config.Torpor, "manager", "--kubeconfig", d.Kubeconfig, "--namespace", system,
		"--metrics-address", "0", "--probe-address", addresses[2], "--webhook-address", addresses[0]); err != nil {
		return err
	}
	own, err := d.writeKubeconfig("torpor-cf-api")
	if err != nil {
		return err
	}
	if _, err := d.StartProgram("cf-api", d.config.Torpor, "cf-api", "--kubeconfig", own, "--address", addresses[1], "--metrics-address", "0", "--tls-folder", d.config.Dir); err != nil {
		return err
	}
	d.api = "https://" + addresses[1]
	return d.awaitObserved("the CF API answers at "+d.api, func() error {
		pool, err := certutil.NewPool(d.config.FilePath("tls.crt"))
		if err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
		d.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
		_, _, err = d.sendRequest("", http.MethodGet, "/healthz", "")
		return err
	})
}

// writeKubeconfig writes a kubeconfig with the token of a user, without the rights of the admin.
func (d *appDemo) writeKubeconfig(name string) (string, error) {
	c, err := clientcmd.LoadFromFile(d.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	c.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: d.tokens[name]}}
	c.Contexts[c.CurrentContext].AuthInfo = name
	file := d.config.FilePath(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return file, nil
}
