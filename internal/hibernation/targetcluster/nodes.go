// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

const controlPlaneRole = "node-role.kubernetes.io/control-plane"

// ListNodes returns the cluster's nodes, each with its newest sign of life. The Ready condition alone is none:
// after a sleep it still says what was true before.
func (c *ClusterClient) ListNodes(ctx context.Context) ([]hibernation.ObservedNode, error) {
	renewed, err := c.listLeases(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []hibernation.ObservedNode
	next := ""
	for {
		var list corev1.NodeList
		if err := c.listPage(ctx, "/api/v1/nodes", next, &list); err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range list.Items {
			nodes = append(nodes, observeNode(&list.Items[i], renewed))
		}
		if next = list.Continue; next == "" {
			return nodes, nil
		}
	}
}

func (c *ClusterClient) listLeases(ctx context.Context) (map[string]time.Time, error) {
	renewed := map[string]time.Time{}
	next := ""
	for {
		var list coordinationv1.LeaseList
		path := "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases"
		if err := c.listPage(ctx, path, next, &list); err != nil {
			return nil, fmt.Errorf("list node leases: %w", err)
		}
		for _, l := range list.Items {
			if l.Spec.RenewTime != nil {
				renewed[l.Name] = l.Spec.RenewTime.Time
			}
		}
		if next = list.Continue; next == "" {
			return renewed, nil
		}
	}
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
		out.Ready = cond.Status == corev1.ConditionTrue
		if cond.LastHeartbeatTime.After(out.LastSeen) {
			out.LastSeen = cond.LastHeartbeatTime.Time
		}
	}
	return out
}

func (c *ClusterClient) listPage(ctx context.Context, path, next string, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r := c.rest.Get().AbsPath(path).Param("limit", strconv.Itoa(pageSize)).MaxRetries(0)
	if next != "" {
		r = r.Param("continue", next)
	}
	return r.Do(ctx).Into(into)
}
