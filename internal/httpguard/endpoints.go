// SPDX-License-Identifier: Apache-2.0

package httpguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strings"
	"syscall"
)

// ErrAddressDenied means that users of the hub must not reach an address through the manager.
var ErrAddressDenied = errors.New("the address is link-local or of a metadata service, which is refused unless --allow-endpoints lists the address")

// Endpoints are the servers that an administrator allows, for example with --allow-endpoints.
type Endpoints struct {
	patterns []string
	prefixes []netip.Prefix
}

// ParseEndpoints parses host names, patterns such as *.example.com, IP addresses, and networks such as 10.0.0.0/8.
func ParseEndpoints(list []string) (Endpoints, error) {
	var e Endpoints
	for _, entry := range list {
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			e.prefixes = append(e.prefixes, prefix.Masked())
			continue
		}
		if address, err := netip.ParseAddr(entry); err == nil {
			e.prefixes = append(e.prefixes, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		if _, err := path.Match(entry, ""); err != nil || entry == "" || strings.ContainsAny(entry, "/:@ ") {
			return Endpoints{}, fmt.Errorf("expected a host name, a pattern such as *.example.com, an address or a network, found %q", entry)
		}
		e.patterns = append(e.patterns, strings.ToLower(entry))
	}
	return e, nil
}

// IsEmpty reports whether the list is empty.
func (e Endpoints) IsEmpty() bool { return len(e.patterns)+len(e.prefixes) == 0 }

// Includes reports whether a host is listed. A name is listed if it matches a pattern, and an address if it is in a
// network.
func (e Endpoints) Includes(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return e.includesAddress(address)
	}
	for _, pattern := range e.patterns {
		if ok, err := path.Match(pattern, strings.ToLower(host)); ok && err == nil {
			return true
		}
	}
	return false
}

func (e Endpoints) includesAddress(address netip.Addr) bool {
	for _, prefix := range e.prefixes {
		if prefix.Contains(address.WithZone("").Unmap()) {
			return true
		}
	}
	return false
}

// CheckHost returns an error if the host is a denied address that is not listed. Names are checked later, when they are
// resolved, except in a request through a proxy, which resolves them itself.
func (e Endpoints) CheckHost(host string) error {
	address, err := netip.ParseAddr(host)
	if err == nil && isDenied(address) && !e.includesAddress(address) {
		return ErrAddressDenied
	}
	return nil
}

// ControlDial is a Control function for a net.Dialer. It checks each address after its name was resolved, so a name
// cannot bypass the check by changing its address between the check and its use.
func (e Endpoints) ControlDial(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("split the address to dial: %w", err)
	}
	return e.CheckHost(host)
}

// isDenied reports whether an address is link-local, multicast or unspecified, or belongs to a cloud's metadata
// service.
func isDenied(address netip.Addr) bool {
	address = address.WithZone("").Unmap()
	if address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() {
		return true
	}
	// These metadata services are outside of the link-local networks: AWS over IPv6, Azure, Alibaba and Oracle.
	for _, metadata := range []string{"fd00:ec2::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"} {
		if address == netip.MustParseAddr(metadata) {
			return true
		}
	}
	// A NAT64 address refers to the IPv4 address in its last four bytes.
	if bytes := address.As16(); address.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(address) {
		return isDenied(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	return false
}

// IsPublic reports whether an address is on the public internet, as opposed to a network to which the manager may be
// connected.
func IsPublic(address netip.Addr) bool {
	address = address.WithZone("").Unmap()
	if !address.IsGlobalUnicast() || address.IsPrivate() || isDenied(address) {
		return false
	}
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(address) {
		bytes := address.As16()
		return IsPublic(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	if address.Is6() && !netip.MustParsePrefix("2000::/3").Contains(address) {
		return false
	}
	// From the IANA registry of special-purpose addresses: this host, carriers' NAT, protocol assignments, benchmarks,
	// reserved, documentation, and prefixes that embed IPv4 addresses (Teredo, 6to4).
	for _, special := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16"} {
		if netip.MustParsePrefix(special).Contains(address) {
			return false
		}
	}
	return true
}
