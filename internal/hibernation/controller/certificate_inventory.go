// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

const (
	// clockSkew is how far the clocks of the hub and the cluster may differ.
	clockSkew = 10 * time.Second
	// roleLabel marks the control-plane Machines of OpenShift.
	roleLabel  = "machine.openshift.io/cluster-api-machine-role"
	roleMaster = "master"
)

// buildInventory returns who may get certificates: OpenShift's Machines where the cluster has them, otherwise the nodes
// that were recorded before the hibernation. Either way a recorded node keeps its identity.
func buildInventory(record *hivev1.HibernationRecord, nodes []hibernation.ObservedNode, machines []unstructured.Unstructured, isOpenShift bool) csr.NodeInventory {
	var inv csr.NodeInventory
	for _, n := range nodes {
		inv.Nodes = append(inv.Nodes, csr.ExistingNode{Name: n.Name, UID: types.UID(n.UID)})
	}
	if record == nil || record.ResumeStartedAt == nil {
		// Without the start of a resume the judge approves nothing.
		return inv
	}
	inv.NotBefore = record.ResumeStartedAt.Add(-clockSkew)
	// Machines may spell DNS names in other ways than their nodes.
	recorded := map[string]types.UID{}
	for _, n := range record.Nodes {
		recorded[csr.NormalizeNodeName(n.Name)] = types.UID(n.UID)
	}
	if isOpenShift {
		inv.Bootstrappers = []csr.BootstrapIdentity{csr.OpenShiftIdentity()}
		for i := range machines {
			m := openShiftMachine(&machines[i])
			m.NodeUID = recorded[csr.NormalizeNodeName(m.NodeName)]
			inv.Machines = append(inv.Machines, m)
		}
		return inv
	}
	inv.Bootstrappers = []csr.BootstrapIdentity{csr.TokenIdentity()}
	for _, n := range record.Nodes {
		inv.Machines = append(inv.Machines, recordedMachine(n))
	}
	return inv
}

func recordedMachine(n hivev1.RecordedNode) csr.KnownMachine {
	m := csr.KnownMachine{NodeName: n.Name, NodeUID: types.UID(n.UID), ControlPlane: n.ControlPlane}
	for _, a := range n.Addresses {
		m.Addresses = append(m.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(a.Type), Address: a.Address})
	}
	return m
}

// openShiftMachine reads the few fields of a Machine that matter; one that does not look like a Machine takes no node.
func openShiftMachine(u *unstructured.Unstructured) csr.KnownMachine {
	var fields struct {
		Status struct {
			NodeRef   *corev1.ObjectReference `json:"nodeRef"`
			Addresses []corev1.NodeAddress    `json:"addresses"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &fields); err != nil {
		return csr.KnownMachine{}
	}
	m := csr.KnownMachine{
		Addresses: fields.Status.Addresses, Deleting: u.GetDeletionTimestamp() != nil,
		ControlPlane: u.GetLabels()[roleLabel] == roleMaster,
	}
	if fields.Status.NodeRef != nil {
		m.NodeName = fields.Status.NodeRef.Name
		return m
	}
	// A Machine whose node has not joined yet has no reference; on AWS the node will be named after the internal DNS name.
	for _, a := range fields.Status.Addresses {
		if a.Type == corev1.NodeInternalDNS {
			m.NodeName = a.Address
		}
	}
	return m
}
