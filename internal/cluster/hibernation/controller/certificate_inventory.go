// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
)

// clockSkew is the tolerated difference between the clocks of the hub and the cluster.
const clockSkew = 10 * time.Second

// measureClock returns how far the server's clock is ahead, based on the Date header of its response to a request. It
// is zero without a date, or if rounding and latency may explain the difference.
func measureClock(date, asked time.Time) time.Duration {
	ahead := date.Sub(asked)
	if date.IsZero() || ahead.Abs() < clockSkew {
		return 0
	}
	return ahead
}

// buildInventory returns the machines that may get certificates. For each node it uses the OpenShift Machine if one
// exists, and otherwise the node as recorded before the hibernation. In both cases, the recorded UID of the node is
// used.
func buildInventory(o hibernation.Observed, machines []csr.KnownMachine, isOpenShift bool) csr.NodeInventory {
	inv := csr.NodeInventory{Now: o.Now}
	for _, n := range o.Nodes {
		inv.Nodes = append(inv.Nodes, csr.ExistingNode{Name: n.Name, UID: types.UID(n.UID), HasReported: hibernation.HasReported(o.Record, n)})
	}
	if o.Record == nil || o.Record.ResumeStartedAt == nil {
		// Without the start of a resume, no request is approved.
		return inv
	}
	inv.NotBefore, inv.NotAfter = o.Record.ResumeStartedAt.Add(-clockSkew), hibernation.ApprovalsUntil(o.Record)
	inv.ClientsFrom = hibernation.ClientApprovalsFrom(o.Record)
	inv.Bootstrappers = []csr.BootstrapIdentity{csr.TokenIdentity()}
	if isOpenShift {
		inv.Bootstrappers = []csr.BootstrapIdentity{csr.OpenShiftIdentity()}
	}
	// The spelling of DNS names may differ between machines and nodes.
	recorded, withMachine := map[string]types.UID{}, map[string]bool{}
	for _, n := range o.Record.Nodes {
		recorded[csr.NormalizeNodeName(n.Name)] = types.UID(n.UID)
	}
	for _, m := range machines {
		name := csr.NormalizeNodeName(m.NodeName)
		m.NodeUID, withMachine[name] = recorded[name], true
		inv.Machines = append(inv.Machines, m)
	}
	owners := findMachineOwners(o.Record.Nodes, o.Machines)
	for _, n := range o.Record.Nodes {
		if !withMachine[csr.NormalizeNodeName(n.Name)] {
			inv.Machines = append(inv.Machines, recordedMachine(n, owners))
		}
	}
	return inv
}

func recordedMachine(n hivev1.RecordedNode, owners machineOwners) csr.KnownMachine {
	m := csr.KnownMachine{NodeName: n.Name, NodeUID: types.UID(n.UID), ControlPlane: n.ControlPlane}
	for _, a := range owners.confirmedAddresses(n) {
		m.Addresses = append(m.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(a.Type), Address: a.Address})
	}
	return m
}

// machineOwners maps nodes to machines of the cloud. A kubelet writes its node's addresses itself, and could claim
// those of another node.
type machineOwners struct {
	// byAddress and byName find machines. Addresses are also used as names.
	byAddress, byName map[string][]*claimedMachine
}

type claimedMachine struct {
	// isNamed is true if a recorded node has the machine's name.
	isNamed bool
	// claims is the number of recorded nodes that have one of the machine's addresses.
	claims int
}

func findMachineOwners(nodes []hivev1.RecordedNode, atCloud []actuator.Machine) machineOwners {
	owners := machineOwners{byAddress: map[string][]*claimedMachine{}, byName: map[string][]*claimedMachine{}}
	for _, m := range atCloud {
		claimed := &claimedMachine{}
		for _, address := range m.Addresses {
			name := csr.NormalizeNodeName(address)
			owners.byAddress[name] = append(owners.byAddress[name], claimed)
			owners.byName[name] = append(owners.byName[name], claimed)
		}
		for _, name := range []string{m.Name, m.ID} {
			name = csr.NormalizeNodeName(name)
			owners.byName[name] = append(owners.byName[name], claimed)
		}
	}
	for _, n := range nodes {
		for _, m := range owners.byName[csr.NormalizeNodeName(n.Name)] {
			m.isNamed = true
		}
		for m := range owners.claimedBy(n) {
			m.claims++
		}
	}
	return owners
}

func (o machineOwners) claimedBy(n hivev1.RecordedNode) map[*claimedMachine]bool {
	claimed := map[*claimedMachine]bool{}
	for _, a := range n.Addresses {
		for _, m := range o.byAddress[csr.NormalizeNodeName(a.Address)] {
			claimed[m] = true
		}
	}
	return claimed
}

// ownerOf returns a node's machine; nil if that is uncertain. The machine must have one of the node's addresses. If
// machines with the node's name exist, it must be the only one of these. Otherwise it must be the only machine, and no
// other recorded node may have its name or one of its addresses.
func (o machineOwners) ownerOf(n hivev1.RecordedNode) *claimedMachine {
	claimed := o.claimedBy(n)
	named := o.byName[csr.NormalizeNodeName(n.Name)]
	if len(named) > 0 {
		maps.DeleteFunc(claimed, func(m *claimedMachine, _ bool) bool { return !slices.Contains(named, m) })
	}
	for m := range claimed {
		if len(claimed) == 1 && (len(named) > 0 || !m.isNamed && m.claims == 1) {
			return m
		}
	}
	return nil
}

// confirmedAddresses returns the node's name, and the addresses that its machine also has; nothing if its machine is
// uncertain. If the cloud lists no addresses, it returns all addresses of the node.
func (o machineOwners) confirmedAddresses(n hivev1.RecordedNode) []hivev1.NodeAddress {
	if len(o.byAddress) == 0 {
		return n.Addresses
	}
	owner := o.ownerOf(n)
	if owner == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Addresses), func(a hivev1.NodeAddress) bool {
		name := csr.NormalizeNodeName(a.Address)
		return !slices.Contains(o.byAddress[name], owner) && name != csr.NormalizeNodeName(n.Name)
	})
}
