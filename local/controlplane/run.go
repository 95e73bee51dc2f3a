// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
	pollInterval = 50 * time.Millisecond
)

// Run starts the control plane, calls ready once it serves (with the default ServiceAccount when controllers run),
// and stops it in order when ctx ends. Only one can run in a process: Kubernetes keeps feature gates and metrics globally.
func Run(ctx context.Context, c Config, ready func(server string)) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	p, err := c.loadPorts(ctx)
	if err != nil {
		return err
	}
	if err := c.issueCertificates(p); err != nil {
		return err
	}
	// The components set up logging one after the other; only the first may win.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged

	etcd, url, err := startEtcd(ctx, c, p)
	if err != nil {
		return err
	}
	defer etcd.Close()
	// The API server outlives the others and etcd outlives it: it lingers for a minute when its etcd has gone first.
	api := startComponent(ctx, "kube-apiserver", func(ctx context.Context) error { return runAPIServer(ctx, c.apiServerFlags(p, url)) })
	defer api.stop()
	client, err := c.awaitAPI(ctx, api)
	if err != nil {
		return err
	}
	parts := []*component{api}
	if !c.APIOnly {
		kcm := startComponent(ctx, "kube-controller-manager", func(ctx context.Context) error { return runControllerManager(ctx, c.controllerManagerFlags()) })
		defer kcm.stop()
		sched := startComponent(ctx, "kube-scheduler", func(ctx context.Context) error { return runScheduler(ctx, c.schedulerFlags()) })
		defer sched.stop()
		parts = append(parts, kcm, sched)
		if err := awaitServiceAccount(ctx, client); err != nil {
			return err
		}
	}
	if c.ApproveServing {
		approver := startComponent(ctx, "serving-approver", func(ctx context.Context) error { return approveServing(ctx, client) })
		defer approver.stop()
	}
	ready(c.serverURL(p))
	return awaitFirstExit(ctx, parts)
}

// component is a part that runs in a goroutine of its own, on a context of its own so that parts stop in order.
type component struct {
	name   string
	cancel context.CancelFunc
	// err is what the part ended with, once done is closed.
	err  error
	done chan struct{}
}

func startComponent(ctx context.Context, name string, run func(context.Context) error) *component {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &component{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = run(own)
	}()
	return c
}

func (c *component) stop() {
	c.cancel()
	select {
	case <-c.done:
	case <-time.After(stopTimeout):
	}
}

// awaitFirstExit waits for the end of ctx; a part that ends by itself before is an error.
func awaitFirstExit(ctx context.Context, parts []*component) error {
	failed := make(chan error, len(parts))
	for _, p := range parts {
		go func() {
			<-p.done
			failed <- fmt.Errorf("%s ended by itself: %w", p.name, errors.Join(p.err, errEndedEarly))
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

var errEndedEarly = errors.New("expected it to run until it is told to stop")

func (c Config) awaitAPI(ctx context.Context, api *component) (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read admin kubeconfig: %w", err)
	}
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-api.done:
			return false, fmt.Errorf("kube-apiserver ended before it was ready: %w", errors.Join(api.err, errEndedEarly))
		default:
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
		_, err := client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default ServiceAccount: %w", err)
	}
	return nil
}
