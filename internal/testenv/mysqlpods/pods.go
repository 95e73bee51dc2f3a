// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

const (
	probeTick    = 200 * time.Millisecond
	probeTimeout = time.Second
)

// BuildPod is an instance's Pod as the StatefulSet makes it.
func BuildPod(cluster types.NamespacedName, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: fmt.Sprintf("moco-%s-%d", cluster.Name, i),
			Labels: map[string]string{
				mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.InstanceLabel: cluster.Name, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
			},
		},
		Spec: corev1.PodSpec{
			Containers:         []corev1.Container{{Name: mocov1beta2.MysqldContainer, Image: "mysql"}},
			ServiceAccountName: "default", AutomountServiceAccountToken: new(false),
		},
	}
}

// ReportPod is what the kubelet reports of a Pod.
func ReportPod(ctx context.Context, c client.Client, pod *corev1.Pod, address string, ready bool) error {
	before := pod.DeepCopy()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{condition}
	if err := c.SubResource("status").Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("report the Pod %s: %w", pod.Name, err)
	}
	return nil
}

// ReplacePod deletes a Pod, if there is one, and makes it anew. Its server is the caller's business.
func (c *PodCluster) ReplacePod(ctx context.Context, i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.pods[i]; old != nil {
		if err := c.Env.Client.Delete(ctx, old, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the Pod %s: %w", old.Name, err)
		}
	}
	pod := BuildPod(c.Name, i)
	if err := c.Env.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("make the Pod %s: %w", pod.Name, err)
	}
	c.pods[i] = pod
	return ReportPod(ctx, c.Env.Client, pod, c.PodAddresses()[i], acceptsConnections(ctx, c.Servers[i].Address))
}

// startProbe reports whether a Pod is ready until the test ends. A node that is cut off reports nothing.
func (c *PodCluster) startProbe(t testing.TB, i int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var probes sync.WaitGroup
	probes.Go(func() {
		tick := time.NewTicker(probeTick)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			is := acceptsConnections(ctx, c.Servers[i].Address)
			// The probe reaches the server past the network, but its report would not leave a node that is cut off.
			if ctx.Err() != nil || c.Network != nil && c.Network.IsCut(i) {
				continue
			}
			if err := c.reportReadiness(ctx, i, is); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		probes.Wait()
	})
}

func (c *PodCluster) reportReadiness(ctx context.Context, i int, is bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.pods[i]
	if was := pod.Status.Conditions[0].Status == corev1.ConditionTrue; was == is {
		return nil
	}
	return ReportPod(ctx, c.Env.Client, pod, c.PodAddresses()[i], is)
}

func acceptsConnections(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(mysqld.Port)))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
