// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"context"
	"fmt"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// registerNode creates the Node, or finds the one from before the machine was switched off. It tries again until it
// succeeds: a renewal of the client certificate closes every connection, also the one in use.
func (c Config) registerNode(ctx context.Context, client kubernetes.Interface, port int32) error {
	err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(ctx context.Context) (bool, error) {
		if err := c.createAndReport(ctx, client, port); err != nil {
			klog.FromContext(ctx).Info("Node is not registered yet", "err", err)
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("register node: %w", err)
	}
	return nil
}

func (c Config) createAndReport(ctx context.Context, client kubernetes.Interface, port int32) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{
		corev1.LabelHostname: c.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}}
	created, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	_, err := client.CoreV1().Nodes().Create(created, node, metav1.CreateOptions{})
	if err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node: %w", err)
	}
	return c.reportNodeStatus(ctx, client, port)
}

// reportPeriodically reports the status until ctx ends. A report that did not arrive is repeated with the next beat.
func (c Config) reportPeriodically(ctx context.Context, client kubernetes.Interface, port int32) error {
	_ = wait.PollUntilContextCancel(ctx, c.Heartbeat, false, func(ctx context.Context) (bool, error) {
		_ = c.reportNodeStatus(ctx, client, port)
		return false, nil
	})
	return nil
}

func (c Config) reportNodeStatus(ctx context.Context, client kubernetes.Interface, port int32) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.fillNodeStatus(&node.Status, port)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("report node status: %w", err)
	}
	return nil
}

func (c Config) fillNodeStatus(s *corev1.NodeStatus, port int32) {
	// More than any test asks for: nothing really runs here.
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("250"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	s.Capacity, s.Allocatable = capacity, capacity
	s.Addresses = c.nodeAddresses()
	s.DaemonEndpoints.KubeletEndpoint.Port = port
	s.NodeInfo.KubeletVersion, s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = "v1.36.3", runtime.GOOS, runtime.GOARCH
	setCondition(s, corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory")
	setCondition(s, corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure")
	setCondition(s, corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID")
	setCondition(s, corev1.NodeReady, corev1.ConditionTrue, "KubeletReady")
}

func setCondition(s *corev1.NodeStatus, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) {
	now := metav1.Now()
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.LastTransitionTime = now
			}
			c.Status, c.Reason, c.LastHeartbeatTime = status, reason, now
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: "hollow node", LastHeartbeatTime: now, LastTransitionTime: now,
	})
}
