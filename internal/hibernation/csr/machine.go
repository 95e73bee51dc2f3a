// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func machineKnown(c candidate) string {
	if len(c.machines) == 0 {
		return fmt.Sprintf("expected a machine for node %s, found none", quoted(c.nodeName))
	}
	return ""
}

// oneMachine guards against a name that is passed on: until the old machine is gone, the owner is unclear.
func oneMachine(c candidate) string {
	if len(c.machines) > 1 {
		return fmt.Sprintf("expected one machine for node %s, found %d", quoted(c.nodeName), len(c.machines))
	}
	return ""
}

func machineStays(c candidate) string {
	if c.machines[0].Deleting {
		return fmt.Sprintf("expected the machine of node %s to stay, found it being deleted", quoted(c.nodeName))
	}
	return ""
}

func nodeExists(c candidate) string {
	if c.inv.nodeIndex(c.nodeName) < 0 {
		return fmt.Sprintf("expected the node %s to exist, found none", quoted(c.nodeName))
	}
	return ""
}

// sameNode runs after nodeExists.
func sameNode(c candidate) string {
	recorded, found := c.machines[0].NodeUID, c.inv.Nodes[c.inv.nodeIndex(c.nodeName)].UID
	if recorded != "" && recorded != found {
		return fmt.Sprintf("expected node %s with the recorded UID %q, found %q", quoted(c.nodeName), recorded, found)
	}
	return ""
}

func addressesKnown(c candidate) string {
	names, ips := c.machines[0].names(), c.machines[0].ips()
	if len(names) == 0 && len(ips) == 0 {
		return fmt.Sprintf("expected the machine of node %s to have addresses, found none", quoted(c.nodeName))
	}
	return ""
}

func ownAddresses(c candidate) string {
	names, ips := c.machines[0].names(), c.machines[0].ips()
	var foreign []string
	for _, name := range c.parsed.DNSNames {
		if !slices.Contains(names, normalName(name)) {
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
		return fmt.Sprintf("expected only addresses of the machine of node %s, found %s", quoted(c.nodeName), listed(foreign))
	}
	return ""
}

func (inv Inventory) machinesFor(nodeName string) []Machine {
	if nodeName == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(inv.Machines), func(m Machine) bool {
		return normalName(m.NodeName) != normalName(nodeName)
	})
}

// nodeIndex compares exactly: the certificate carries the name of the Node, not a variant of it.
func (inv Inventory) nodeIndex(name string) int {
	return slices.IndexFunc(inv.Nodes, func(n Node) bool { return n.Name == name })
}

// names returns the DNS names of the machine in normal form.
func (m Machine) names() []string {
	types := []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
	var names []string
	for _, address := range m.Addresses {
		name := normalName(address.Address)
		_, notIP := netip.ParseAddr(name)
		if slices.Contains(types, address.Type) && name != "" && notIP != nil {
			names = append(names, name)
		}
	}
	return names
}

// ips returns the IP addresses of the machine, IPv4-mapped ones as IPv4.
func (m Machine) ips() []netip.Addr {
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

func normalName(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}
