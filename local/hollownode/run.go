// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const leaseRenewals = 4

// RunNode keeps the node alive until ctx ends. Like a machine that loses its power it leaves its Node object behind.
func RunNode(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.certificatesDir(), 0o700); err != nil {
		return fmt.Errorf("make node folder: %w", err)
	}
	if !waitFor(ctx, c.Hold) || !waitWhileFileExists(ctx, c.HoldFile) {
		return nil
	}
	client, err := c.keepClientCertificate(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	serving, err := c.keepServingCertificate(ctx, client)
	if err != nil {
		return err
	}
	port, err := serveHealthz(ctx, c.Address, serving)
	if err != nil {
		return err
	}
	if err := c.registerNode(ctx, client, port); err != nil {
		return err
	}
	go c.renewLease(ctx, client)
	go runPods(ctx, client, c)
	return c.reportPeriodically(ctx, client, port)
}

// waitFor waits; it reports whether there is still something to start.
func waitFor(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// waitWhileFileExists waits until nothing is found at the path; it reports whether there is still something to start.
func waitWhileFileExists(ctx context.Context, path string) bool {
	if path == "" {
		return true
	}
	err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(context.Context) (bool, error) {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist), nil
	})
	return err == nil
}

func (c Config) renewLease(ctx context.Context, client kubernetes.Interface) {
	// A kubelet renews its lease of 40 seconds every 10, in the same proportion.
	seconds := max(int32(c.Heartbeat.Seconds()*leaseRenewals), 1)
	controller := lease.NewController(clock.RealClock{}, client, c.Name, seconds, nil, c.Heartbeat, c.Name, corev1.NamespaceNodeLease, nil)
	controller.Run(klog.NewContext(ctx, klog.Background()))
}
