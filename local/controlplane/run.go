// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/torpor-dev/torpor/local/component"
	"github.com/torpor-dev/torpor/local/kubeclient"
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
	api := component.Start(ctx, "kube-apiserver", func(ctx context.Context, _ func()) error { return runAPIServer(ctx, c.apiServerFlags(p, url)) })
	defer func() { _ = api.Stop(stopTimeout) }() // Kubernetes' components end with errors that mean nothing.
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
