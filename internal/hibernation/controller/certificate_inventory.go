// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

// clockSkew is how far the clocks of the hub and the cluster may differ.
const clockSkew = 10 * time.Second

// buildInventory returns who may get certificates: OpenShift's Machines where the cluster has them, otherwise the nodes
// that were recorded before the hibernation. Either way a recorded node keeps its identity.
func buildInventory(record *hivev1.HibernationRecord, nodes []hibernation.ObservedNode, machines []csr.KnownMachine, isOpenShift bool) csr.NodeInventory {
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
		for _, m := range machines {
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
