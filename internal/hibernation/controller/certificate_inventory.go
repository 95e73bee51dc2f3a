// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

// clockSkew is how far the clocks of the hub and the cluster may differ without being compared.
const clockSkew = 10 * time.Second

// measureClock returns how far a server's clock is ahead that gave a date to a request of this moment: zero if it gave none, or if the
// difference may be that of the two whole seconds and of the way.
func measureClock(date, asked time.Time) time.Duration {
	ahead := date.Sub(asked)
	if date.IsZero() || ahead.Abs() < clockSkew {
		return 0
	}
	return ahead
}

// buildInventory returns who may get certificates: for each node OpenShift's Machine where there is one, otherwise the node as
// it was recorded before the hibernation. Either way a recorded node keeps its identity.
func buildInventory(o hibernation.Observed, machines []csr.KnownMachine, isOpenShift bool) csr.NodeInventory {
	inv := csr.NodeInventory{Now: o.Now}
	for _, n := range o.Nodes {
		inv.Nodes = append(inv.Nodes, csr.ExistingNode{Name: n.Name, UID: types.UID(n.UID), HasReported: hibernation.HasReported(o.Record, n)})
	}
	if o.Record == nil || o.Record.ResumeStartedAt == nil {
		// Without the start of a resume the judge approves nothing.
		return inv
	}
	inv.NotBefore, inv.NotAfter = o.Record.ResumeStartedAt.Add(-clockSkew), hibernation.ApprovalsUntil(o.Record)
	inv.ClientsFrom = hibernation.ClientApprovalsFrom(o.Record)
	inv.Bootstrappers = []csr.BootstrapIdentity{csr.TokenIdentity()}
	if isOpenShift {
		inv.Bootstrappers = []csr.BootstrapIdentity{csr.OpenShiftIdentity()}
	}
	// Machines may spell DNS names in other ways than their nodes.
	recorded, withMachine := map[string]types.UID{}, map[string]bool{}
	for _, n := range o.Record.Nodes {
		recorded[csr.NormalizeNodeName(n.Name)] = types.UID(n.UID)
	}
	for _, m := range machines {
		name := csr.NormalizeNodeName(m.NodeName)
		m.NodeUID, withMachine[name] = recorded[name], true
		inv.Machines = append(inv.Machines, m)
	}
	for _, n := range o.Record.Nodes {
		if !withMachine[csr.NormalizeNodeName(n.Name)] {
			inv.Machines = append(inv.Machines, recordedMachine(n, o.Machines))
		}
	}
	return inv
}

func recordedMachine(n hivev1.RecordedNode, atCloud []actuator.Machine) csr.KnownMachine {
	m := csr.KnownMachine{NodeName: n.Name, NodeUID: types.UID(n.UID), ControlPlane: n.ControlPlane}
	for _, a := range confirmedAddresses(n, atCloud) {
		m.Addresses = append(m.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(a.Type), Address: a.Address})
	}
	return m
}

// confirmedAddresses returns those addresses of a node that its cloud confirms, beside its own name: a kubelet writes the
// addresses of its node itself, and could claim another's. A cloud that tells no addresses confirms all.
func confirmedAddresses(n hivev1.RecordedNode, atCloud []actuator.Machine) []hivev1.NodeAddress {
	if !slices.ContainsFunc(atCloud, func(m actuator.Machine) bool { return len(m.Addresses) > 0 }) {
		return n.Addresses
	}
	owners := slices.DeleteFunc(slices.Clone(atCloud), func(m actuator.Machine) bool {
		return !slices.ContainsFunc(n.Addresses, func(a hivev1.NodeAddress) bool { return isAddressOf(m, a) })
	})
	if len(owners) != 1 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Addresses), func(a hivev1.NodeAddress) bool {
		return !isAddressOf(owners[0], a) && csr.NormalizeNodeName(a.Address) != csr.NormalizeNodeName(n.Name)
	})
}

func isAddressOf(m actuator.Machine, a hivev1.NodeAddress) bool {
	return slices.ContainsFunc(m.Addresses, func(own string) bool {
		return csr.NormalizeNodeName(own) == csr.NormalizeNodeName(a.Address)
	})
}
