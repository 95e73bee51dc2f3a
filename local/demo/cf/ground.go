// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed" // The manifest is a file, as an admin's is.
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/torpor-dev/torpor/local/cloud/process"
)

//go:embed people.yaml
var people string

func (p *play) controlPlane() error {
	p.story.Step("A real control plane, and a hollow node whose Pods are said to run")
	if err := p.start("hub", p.Local, "control-plane", "--dir", p.path("hub")); err != nil {
		return err
	}
	err := p.story.Poll(p.ctx, "the API server", limit, func(context.Context) error {
		_, err := p.kubectl("get", "--raw", "/readyz")
		return err
	})
	if err != nil {
		return err
	}
	if err := p.start("node", p.Local, "node", "--name", "node-1", "--dir", p.path("node"), "--bootstrap-kubeconfig", p.admin()); err != nil {
		return err
	}
	return p.await("the node is ready", func() error {
		out, err := p.kubectl("get", "nodes", "--no-headers")
		return expect(err, strings.Contains(out, " Ready "), out)
	})
}

// rights are what an admin gives.
func (p *play) rights() error {
	p.story.Step("An admin installs the kinds and gives rights")
	if err := os.WriteFile(p.path("people.yaml"), []byte(people), 0o600); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(p.ConfigDir, "crd")},
		{"apply", "-f", p.path("people.yaml")},
		{"apply", "-k", filepath.Join(p.ConfigDir, "rbac", "cf")},
		{"-n", space, "create", "rolebinding", "alice", "--clusterrole=torpor-space-developer", "--serviceaccount=" + system + ":alice"},
		{"-n", space, "create", "rolebinding", "bob", "--clusterrole=torpor-space-auditor", "--serviceaccount=" + system + ":bob"},
	} {
		if _, err := p.kubectl(args...); err != nil {
			return err
		}
	}
	for _, name := range []string{"alice", "bob", "torpor-cf-api"} {
		token, err := p.kubectl("-n", system, "create", "token", name)
		if err != nil {
			return err
		}
		p.tokens[name] = strings.TrimSpace(token)
	}
	p.story.Saw("alice develops in the space %s, bob looks on", space)
	return nil
}

func (p *play) torpor() error {
	p.story.Step("torpor manager, which counts revisions at admission, and torpor cf-api, which has no rights but to look")
	addresses, err := freeAddresses(p.ctx)
	if err != nil {
		return err
	}
	if _, err := p.kubectl("apply", "-f", filepath.Join(p.ConfigDir, "webhook", "manifests.yaml")); err != nil {
		return err
	}
	for kind, path := range map[string]string{"mutatingwebhookconfiguration": "/mutate-cfapps", "validatingwebhookconfiguration": "/validate-cfapps"} {
		patch := fmt.Sprintf(`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://%s%s"}]`, addresses[0], path)
		if _, err := p.kubectl("patch", kind, "torpor", "--type=json", "-p", patch); err != nil {
			return err
		}
	}
	if err := p.start("manager", p.Torpor, "manager", "--kubeconfig", p.admin(), "--namespace", system,
		"--metrics-address", "0", "--probe-address", addresses[2], "--webhook-address", addresses[0]); err != nil {
		return err
	}
	own, err := p.kubeconfig("torpor-cf-api")
	if err != nil {
		return err
	}
	if err := p.start("cf-api", p.Torpor, "cf-api", "--kubeconfig", own, "--address", addresses[1], "--metrics-address", "0", "--tls-folder", p.Dir); err != nil {
		return err
	}
	p.api = "https://" + addresses[1]
	return p.await("the CF API answers at "+p.api, func() error {
		ca, err := os.ReadFile(p.path("tls.crt"))
		if err != nil {
			return fmt.Errorf("read certificate: %w", err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		p.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
		_, _, err = p.send("", http.MethodGet, "/healthz", "")
		return err
	})
}

// kubeconfig lets in as one of those who have a token, and nobody else.
func (p *play) kubeconfig(name string) (string, error) {
	c, err := clientcmd.LoadFromFile(p.admin())
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	c.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: p.tokens[name]}}
	c.Contexts[c.CurrentContext].AuthInfo = name
	file := p.path(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return file, nil
}

func (p *play) start(name string, argv ...string) error {
	c, err := p.starter.Start(process.Command{Argv: argv, Log: p.path(name + ".log"), Marker: "demo-cf-" + name})
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.children = append(p.children, c)
	return nil
}

// stopAll stops the programs in the reverse order of their start.
func (p *play) stopAll() error {
	var left error
	for _, c := range slices.Backward(p.children) {
		c.Terminate()
		timer := time.NewTimer(stopLimit)
		select {
		case <-c.Exited():
		case <-timer.C:
			c.Kill()
			<-c.Exited()
			left = fmt.Errorf("expected every program to stop within %s, had to kill one", stopLimit)
		}
		timer.Stop()
	}
	p.starter.Close()
	return left
}

func (p *play) kubectl(args ...string) (string, error) {
	return p.run(nil, p.Kubectl, append([]string{"--kubeconfig", p.admin()}, args...)...)
}

func (p *play) run(env []string, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[min(2, len(args)-1)], err, strings.TrimSpace(wrong.String()))
	}
	return out.String(), nil
}

// await polls until something is so, and tells of it.
func (p *play) await(what string, f func() error) error {
	if err := p.story.Poll(p.ctx, what, limit, func(context.Context) error { return f() }); err != nil {
		return err
	}
	p.story.Saw("%s", what)
	return nil
}

func expect(err error, ok bool, found string) error {
	if err == nil && !ok {
		err = errors.New("found " + strings.TrimSpace(found))
	}
	return err
}

// freeAddresses are for the admission, the API and the probes.
func freeAddresses(ctx context.Context) (found [3]string, err error) {
	var open [len(found)]net.Listener
	for i := range open {
		if open[i], err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return found, fmt.Errorf("find free ports: %w", err)
		}
		found[i] = open[i].Addr().String()
	}
	for _, l := range open {
		err = errors.Join(err, l.Close())
	}
	return found, err
}
