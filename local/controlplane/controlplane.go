// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs etcd, kube-apiserver, kube-controller-manager and kube-scheduler, all of them real, in
// one process that keeps its data in one folder.
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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/torpor-dev/torpor/local/component"
	"github.com/torpor-dev/torpor/local/kubeclient"
	"github.com/torpor-dev/torpor/local/loopback"
	"github.com/torpor-dev/torpor/local/pki"
)

// Config is the configuration of a control plane.
type Config struct {
	// Dir contains certificates, kubeconfigs and etcd's data. A start with an existing folder continues with its
	// data.
	Dir string
	// Address is the address of the API server: a loopback address, or the bridge of a real node.
	Address string
	// Port of the API server; 0 means the port of the last start, or a free port at the first start.
	Port int
	// SigningDuration is how long certificates signed for nodes are valid; 0 means one year.
	SigningDuration time.Duration
	// ApproveServing runs the small in-cluster approver of serving certificates.
	ApproveServing bool
	// APIOnly is true if the controller manager and the scheduler are not run.
	APIOnly bool
	// EmulatedVersion is an older version of Kubernetes, such as 1.35, whose APIs the API server serves; empty means
	// its own version.
	EmulatedVersion string
}

// servingPorts are the ports of the servers. They are stored in the folder, so that kubeconfigs stay valid after a
// restart.
type servingPorts struct {
	API        int `json:"api"`
	EtcdClient int `json:"etcdClient"`
	EtcdPeer   int `json:"etcdPeer"`
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// AdminKubeconfig returns the path of a cluster admin's kubeconfig.
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

// etcdAddress is the address of etcd, regardless of the API server's address.
const etcdAddress = "127.0.0.1"

// chooseFreePorts sets missing ports to free ports, and reserves these until ctx ends.
func (p *servingPorts) chooseFreePorts(ctx context.Context, address string) (err error) {
	for _, of := range []struct {
		port *int
		on   string
	}{{&p.API, address}, {&p.EtcdClient, etcdAddress}, {&p.EtcdPeer, etcdAddress}} {
		if *of.port != 0 {
			continue
		}
		if *of.port, err = loopback.ReservePort(ctx, of.on); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) issueCertificates(p servingPorts) error {
	a, err := pki.OpenAuthority(c.path("pki"))
	if err != nil {
		return err
	}
	if _, err := a.LoadOrMakeKey("sa"); err != nil { // This key signs the tokens of ServiceAccounts.
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

const (
	startTimeout = 4 * time.Minute // Tests may start a dozen control planes at once.
	stopTimeout  = 30 * time.Second
	pollInterval = 50 * time.Millisecond
)

// Run starts the control plane, calls ready once it serves (and the default ServiceAccount exists, if controllers run),
// and stops its components in order when ctx ends. Only one control plane can run in a process, because Kubernetes
// keeps feature gates and metrics globally.
func Run(ctx context.Context, c Config, ready func(server string)) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("create data folder: %w", err)
	}
	p, err := c.loadPorts(ctx)
	if err != nil {
		return err
	}
	if err := c.issueCertificates(p); err != nil {
		return err
	}
	// Each component configures logging, but only the first configuration takes effect.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged

	etcd, url, err := startEtcd(ctx, c, p)
	if err != nil {
		return err
	}
	defer etcd.Close()
	// Stop the API server second to last, and etcd last: an API server without etcd takes a minute to stop.
	api := component.Start(ctx, "kube-apiserver", func(ctx context.Context, _ func()) error { return runAPIServer(ctx, c.apiServerFlags(p, url)) })
	defer func() { _ = api.Stop(stopTimeout) }() // The errors with which Kubernetes' components end are meaningless.
	client, err := c.awaitAPI(ctx, api)
	if err != nil {
		return err
	}
	components := []*component.Component{api}
	if !c.APIOnly {
		kcm := component.Start(ctx, "kube-controller-manager", func(ctx context.Context, _ func()) error {
			return runControllerManager(ctx, c.controllerManagerFlags())
		})
		defer func() { _ = kcm.Stop(stopTimeout) }()
		sched := component.Start(ctx, "kube-scheduler", func(ctx context.Context, _ func()) error { return runScheduler(ctx, c.schedulerFlags()) })
		defer func() { _ = sched.Stop(stopTimeout) }()
		components = append(components, kcm, sched)
		if err := awaitServiceAccount(ctx, client); err != nil {
			return err
		}
	}
	if c.ApproveServing {
		approver := component.Start(ctx, "serving-approver", func(ctx context.Context, _ func()) error { return approveServing(ctx, client) })
		defer func() { _ = approver.Stop(stopTimeout) }()
	}
	ready(c.serverURL(p))
	return component.AwaitFirstExit(ctx, components...)
}

func (c Config) awaitAPI(ctx context.Context, api *component.Component) (kubernetes.Interface, error) {
	client, err := kubeclient.NewClient(c.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		if err := api.EndedEarly(); err != nil {
			return false, err
		}
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(body) == "ok", nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for kube-apiserver: %w", err)
	}
	return client, nil
}

func awaitServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		// No Pod is admitted before its ServiceAccount exists.
		_, err := client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default ServiceAccount: %w", err)
	}
	return nil
}
