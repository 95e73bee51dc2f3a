// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler,
// all of them real, in one process with its data in one folder.
package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/torpor-dev/torpor/local/pki"
)

// Config is what a control plane is started with.
type Config struct {
	// Dir keeps certificates, kubeconfigs and etcd's data. A start on an existing folder goes on with its data.
	Dir string
	// Address is what the API server binds to: a loopback address, or the bridge of a real node.
	Address string
	// Port of the API server; 0 keeps the port of the last start, or takes a free one.
	Port int
	// SigningDuration is how long certificates signed for nodes are valid; 0 means one year.
	SigningDuration time.Duration
	// ApproveServing runs the small in-cluster approver of serving certificates.
	ApproveServing bool
	// APIOnly leaves out the controller manager and the scheduler.
	APIOnly bool
}

// servingPorts are kept in the folder, so that kubeconfigs stay true over a restart.
type servingPorts struct {
	API        int `json:"api"`
	EtcdClient int `json:"etcdClient"`
	EtcdPeer   int `json:"etcdPeer"`
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// AdminKubeconfig is the file that lets a client in as cluster admin.
func (c Config) AdminKubeconfig() string { return c.path("admin.kubeconfig") }

func (c Config) serverURL(p servingPorts) string {
	return "https://" + net.JoinHostPort(c.Address, strconv.Itoa(p.API))
}

func (c Config) loadPorts(ctx context.Context) (servingPorts, error) {
	var p servingPorts
	data, err := os.ReadFile(c.path("ports.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return p, fmt.Errorf("read ports: %w", err)
	default:
		if err := json.Unmarshal(data, &p); err != nil {
			return p, fmt.Errorf("read ports: %w", err)
		}
	}
	if c.Port != 0 {
		p.API = c.Port
	}
	if err := p.chooseFreePorts(ctx, c.Address); err != nil {
		return p, err
	}
	data, err = json.Marshal(p)
	if err != nil {
		return p, fmt.Errorf("encode ports: %w", err)
	}
	if err := os.WriteFile(c.path("ports.json"), data, 0o600); err != nil {
		return p, fmt.Errorf("write ports: %w", err)
	}
	return p, nil
}

// chooseFreePorts takes free ports for those that are not set. All listeners are open at the same time,
// so that the kernel cannot hand out one port twice.
func (p *servingPorts) chooseFreePorts(ctx context.Context, address string) error {
	var listen net.ListenConfig
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for _, port := range []*int{&p.API, &p.EtcdClient, &p.EtcdPeer} {
		if *port != 0 {
			continue
		}
		l, err := listen.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			return fmt.Errorf("find a free port on %s: %w", address, err)
		}
		open = append(open, l)
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

// issueCertificates issues every certificate of the control plane and writes the kubeconfigs.
func (c Config) issueCertificates(p servingPorts) error {
	a, err := pki.OpenAuthority(c.path("pki"))
	if err != nil {
		return err
	}
	if _, err := a.LoadOrMakeKey("sa"); err != nil { // It signs the tokens of ServiceAccounts.
		return err
	}
	for name, s := range map[string]pki.CertificateSubject{
		"apiserver": {Name: "kube-apiserver", Hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1", "10.96.0.1", c.Address,
		}},
		"admin":          {Name: "admin", Groups: []string{"system:masters"}},
		"kcm":            {Name: "system:kube-controller-manager"},
		"scheduler":      {Name: "system:kube-scheduler"},
		"kubelet-client": {Name: "apiserver-kubelet-client", Groups: []string{"system:masters"}},
		"front-proxy":    {Name: "front-proxy-client"},
	} {
		if err := a.IssueCertificate(name, s); err != nil {
			return err
		}
	}
	for _, name := range []string{"admin", "kcm", "scheduler"} {
		if err := a.WriteKubeconfig(c.path(name+".kubeconfig"), name, c.serverURL(p)); err != nil {
			return err
		}
	}
	return nil
}
