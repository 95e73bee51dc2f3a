// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func requireKnownMachine(c judgedRequest) string {
	if len(c.machines) == 0 {
		return fmt.Sprintf("expected a machine for node %s, found none", quoteBounded(c.nodeName))
	}
	return ""
}

func requireSingleMachine(c judgedRequest) string {
	// A new machine may take the name of an old machine. Until the old machine is deleted, it is uncertain which of
	// them made the request.
	if len(c.machines) > 1 {
		return fmt.Sprintf("expected one machine for node %s, found %d", quoteBounded(c.nodeName), len(c.machines))
	}
	return ""
}

func requireMachineStays(c judgedRequest) string {
	if c.machines[0].Deleting {
		return fmt.Sprintf("expected the machine of node %s not to be deleted, found that it is being deleted", quoteBounded(c.nodeName))
	}
	return ""
}

func requireExistingNode(c judgedRequest) string {
	if c.inv.nodeIndex(c.nodeName) < 0 {
		return fmt.Sprintf("expected the node %s to exist, found none", quoteBounded(c.nodeName))
	}
	return ""
}

// requireRecordedNode relies on requireExistingNode, which checks that the node exists.
func requireRecordedNode(c judgedRequest) string {
	// A Node that was deleted and recreated during the hibernation may belong to another machine.
	recorded, found := c.machines[0].NodeUID, c.inv.Nodes[c.inv.nodeIndex(c.nodeName)].UID
	if recorded != "" && recorded != found {
		return fmt.Sprintf("expected node %s with the recorded UID %q, found %q", quoteBounded(c.nodeName), recorded, found)
	}
	return ""
}

func requireKnownAddresses(c judgedRequest) string {
	names, ips := c.machines[0].dnsNames(), c.machines[0].ipAddresses()
	if len(names) == 0 && len(ips) == 0 {
		return fmt.Sprintf("expected the machine of node %s to have addresses, found none", quoteBounded(c.nodeName))
	}
	return ""
}

func requireOwnAddresses(c judgedRequest) string {
	names, ips := c.machines[0].dnsNames(), c.machines[0].ipAddresses()
	var foreign []string
	for _, name := range c.parsed.DNSNames {
		if !slices.Contains(names, NormalizeNodeName(name)) {
			foreign = append(foreign, name)
		}
	}
	for _, raw := range c.parsed.IPAddresses {
		ip, _ := netip.AddrFromSlice(raw)
		if !slices.Contains(ips, ip.Unmap()) {
			foreign = append(foreign, ip.String())
		}
	}
	if len(foreign) > 0 {
		return fmt.Sprintf("expected only addresses of the machine of node %s, found %s", quoteBounded(c.nodeName), quoteSorted(foreign))
	}
	return ""
}

func (inv NodeInventory) machinesFor(nodeName string) []KnownMachine {
	if nodeName == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(inv.Machines), func(m KnownMachine) bool {
		return NormalizeNodeName(m.NodeName) != NormalizeNodeName(nodeName)
	})
}

func (inv NodeInventory) nodeIndex(name string) int {
	// Unlike machine names, node names are compared exactly, because the certificate contains the name of the Node,
	// not a variant.
	return slices.IndexFunc(inv.Nodes, func(n ExistingNode) bool { return n.Name == name })
}

// dnsNames returns the machine's DNS names in normal form.
func (m KnownMachine) dnsNames() []string {
	types := []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
	var names []string
	for _, address := range m.Addresses {
		name := NormalizeNodeName(address.Address)
		_, notIP := netip.ParseAddr(name)
		if slices.Contains(types, address.Type) && name != "" && notIP != nil {
			names = append(names, name)
		}
	}
	return names
}

// ipAddresses returns the machine's IP addresses. IPv4-mapped addresses are returned as IPv4.
func (m KnownMachine) ipAddresses() []netip.Addr {
	types := []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalIP, corev1.NodeExternalIP}
	var ips []netip.Addr
	for _, address := range m.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if slices.Contains(types, address.Type) && err == nil {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// NormalizeNodeName returns the same text for DNS names that differ only in case or a trailing dot.
func NormalizeNodeName(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}
