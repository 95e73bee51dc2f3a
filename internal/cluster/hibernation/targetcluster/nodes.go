// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

const controlPlaneRole = "node-role.kubernetes.io/control-plane"

// masterRole is the label of the control-plane role in older releases, up to OpenShift 4.11.
const masterRole = "node-role.kubernetes.io/master"

const (
	// maxNodesBytes limits the size of all nodes, about 4,000 with three addresses each. They are written to one
	// object, and etcd accepts 1.5 MiB.
	maxNodesBytes = 1280 << 10
	// nodeOverhead and addressOverhead exceed the JSON size of field names and of values with a fixed size.
	nodeOverhead, addressOverhead = 120, 28
	// maxNameBytes is the limit for names in Kubernetes.
	maxNameBytes = 253
)

// ListNodes returns the cluster's nodes, each with the time of its newest lease renewal or heartbeat.
func (c *ClusterClient) ListNodes(ctx context.Context) ([]hibernation.ObservedNode, error) {
	renewed, err := c.listLeaseRenewals(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []hibernation.ObservedNode
	size := 0
	err = c.listItems(ctx, "/api/v1/nodes", func(item []byte) error {
		node, err := decodeNode(item, renewed)
		if size += sizeOf(node.RecordedNode); size > maxNodesBytes {
			return errTooManyNodes
		}
		nodes = append(nodes, node)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return nodes, nil
}

// sizeOf returns an upper bound of a node's size in the hibernation record.
func sizeOf(n hivev1.RecordedNode) int {
	size := nodeOverhead + len(n.Name) + len(n.UID)
	for _, a := range n.Addresses {
		size += addressOverhead + len(a.Type) + len(a.Address)
	}
	return size
}

func (c *ClusterClient) listLeaseRenewals(ctx context.Context) (map[string]time.Time, error) {
	renewed := map[string]time.Time{}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases"
	err := c.listItems(ctx, path, func(item []byte) error {
		var lease struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				RenewTime *metav1.MicroTime `json:"renewTime"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(item, &lease); err != nil || len(lease.Metadata.Name) > maxNameBytes {
			return errMalformed
		}
		if lease.Spec.RenewTime != nil {
			renewed[lease.Metadata.Name] = lease.Spec.RenewTime.Time
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list node leases: %w", err)
	}
	return renewed, nil
}

// decodeNode reads the few relevant fields of a Node.
func decodeNode(item []byte, renewed map[string]time.Time) (hibernation.ObservedNode, error) {
	var n struct {
		Metadata struct {
			objectMetadata

			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Unschedulable bool `json:"unschedulable"`
		} `json:"spec"`
		Status struct {
			Addresses  json.RawMessage `json:"addresses"`
			Conditions json.RawMessage `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(item, &n); err != nil || len(n.Metadata.Name) > maxNameBytes || len(n.Metadata.ResourceVersion) > maxNameBytes {
		return hibernation.ObservedNode{}, errMalformed
	}
	_, isOurs := n.Metadata.Annotations[hivev1.CordonedAnnotation]
	_, controlPlane := n.Metadata.Labels[controlPlaneRole]
	_, isMaster := n.Metadata.Labels[masterRole]
	out := hibernation.ObservedNode{
		RecordedNode: hivev1.RecordedNode{Name: n.Metadata.Name, UID: n.Metadata.UID, ControlPlane: controlPlane || isMaster},
		LastSeen:     renewed[n.Metadata.Name],
		Cordon:       hibernation.NodeCordon{IsSet: n.Spec.Unschedulable, IsOurs: isOurs, ResourceVersion: n.Metadata.ResourceVersion},
	}
	var err error
	if out.Addresses, err = decodeInnerList[hivev1.NodeAddress](n.Status.Addresses); err != nil {
		return out, err
	}
	conditions, err := decodeInnerList[corev1.NodeCondition](n.Status.Conditions)
	if err != nil {
		return out, err
	}
	for _, cond := range conditions {
		if cond.Type != corev1.NodeReady {
			continue
		}
		// A Node keeps its Ready condition while its machine is off, so only its lease and its heartbeat show that the
		// node runs. By default, kubelets renew the lease every ten seconds and the heartbeat every five minutes. The
		// newer of the two times is used.
		out.Ready = cond.Status == corev1.ConditionTrue
		if cond.LastHeartbeatTime.After(out.LastSeen) {
			out.LastSeen = cond.LastHeartbeatTime.Time
		}
	}
	return out, nil
}
