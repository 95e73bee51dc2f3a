// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

const controlPlaneRole = "node-role.kubernetes.io/control-plane"

// ListNodes returns the cluster's nodes, each with its newest sign of life.
func (c *ClusterClient) ListNodes(ctx context.Context) ([]hibernation.ObservedNode, error) {
	renewed, err := c.listLeaseRenewals(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []hibernation.ObservedNode
	err = listPages(ctx, c, "/api/v1/nodes", func(page *corev1.NodeList) {
		for i := range page.Items {
			nodes = append(nodes, observeNode(&page.Items[i], renewed))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return nodes, nil
}

func (c *ClusterClient) listLeaseRenewals(ctx context.Context) (map[string]time.Time, error) {
	renewed := map[string]time.Time{}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases"
	err := listPages(ctx, c, path, func(page *coordinationv1.LeaseList) {
		for _, lease := range page.Items {
			if lease.Spec.RenewTime != nil {
				renewed[lease.Name] = lease.Spec.RenewTime.Time
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list node leases: %w", err)
	}
	return renewed, nil
}

func observeNode(n *corev1.Node, renewed map[string]time.Time) hibernation.ObservedNode {
	_, controlPlane := n.Labels[controlPlaneRole]
	out := hibernation.ObservedNode{
		RecordedNode: hivev1.RecordedNode{Name: n.Name, UID: string(n.UID), ControlPlane: controlPlane},
		LastSeen:     renewed[n.Name],
	}
	for _, a := range n.Status.Addresses {
		out.Addresses = append(out.Addresses, hivev1.NodeAddress{Type: string(a.Type), Address: a.Address})
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type != corev1.NodeReady {
			continue
		}
		// A Node keeps its Ready condition while its machine is off, so only lease and heartbeat are signs of life. By
		// default kubelets renew the lease every ten seconds and the heartbeat every five minutes; the newer of both counts.
		out.Ready = cond.Status == corev1.ConditionTrue
		if cond.LastHeartbeatTime.After(out.LastSeen) {
			out.LastSeen = cond.LastHeartbeatTime.Time
		}
	}
	return out
}
