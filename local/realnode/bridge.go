// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	hostLink     = "torpor1"
	releaseLimit = 10 * time.Second
)

var (
	errNetworkTaken = errors.New("expected no other network 10.250.0.0/24, 10.244.1.0/24 or 10.96.0.0/16 on this machine, found one: its node's networks cannot be there as well")
	errNodeExists   = errors.New("expected no real node on this machine, found one that runs; stop it first, one machine can only run one")
)

// reserveName reserves a name for this process, by an abstract Unix socket: the kernel releases it with the process.
func reserveName(ctx context.Context, name string) (func(), error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", "@torpor-"+name)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errNodeExists, err)
	}
	return func() { _ = l.Close() }, nil
}

// awaitReservation reserves a name that a killed process may hold until its last thread has ended.
func awaitReservation(ctx context.Context, name string) (release func(), err error) {
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, releaseLimit, true, func(ctx context.Context) (bool, error) {
		release, err = reserveName(ctx, name)
		return err == nil, nil
	})
	return release, err
}

// ConnectBridge makes the bridge with the host's address, on which a control plane serves for the node and its pods.
// What it returns removes the bridge, and with it the routes to the node.
func ConnectBridge(ctx context.Context) (func() error, error) {
	release, err := awaitReservation(ctx, "bridge")
	if err != nil {
		return nil, err
	}
	end := func() error {
		defer release()
		return removeLinks()
	}
	if err := makeBridge(); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// RemoveLeftovers removes what a killed process has left: all else has gone with it. It refuses while a node or its bridge is used.
func RemoveLeftovers(ctx context.Context) error {
	for _, name := range []string{"bridge", "node"} {
		release, err := awaitReservation(ctx, name)
		if err != nil {
			return err
		}
		defer release()
	}
	return errors.Join(removeLinks(), removeCgroups(ctx, cgroupPrefix+"*"))
}

func makeBridge() error {
	if os.Geteuid() != 0 {
		return errRoot
	}
	if err := removeLinks(); err != nil { // A killed process has left it.
		return err
	}
	for _, network := range []string{HostAddress + networkBits, podNetwork, serviceRange} {
		if hasRouteInto(network) {
			return fmt.Errorf("%w: %s", errNetworkTaken, network)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make bridge %s: %w", Bridge, err)
	}
	return setAddress(bridge, HostAddress)
}

func removeLinks() error {
	for _, name := range []string{hostLink, Bridge} {
		link, err := netlink.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("remove link %s: %w", name, err)
		}
	}
	return nil
}

// hasRouteInto reports whether the machine has a route into the network already, apart from its default route.
func hasRouteInto(network string) bool {
	ip, wanted, err := net.ParseCIDR(network)
	if err != nil {
		return true
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	for _, r := range routes {
		// A default route has no mask and leads everywhere.
		if ones, _ := maskSize(r.Dst); ones > 0 && (r.Dst.Contains(ip) || wanted.Contains(r.Dst.IP)) {
			return true
		}
	}
	return err != nil
}

func maskSize(n *net.IPNet) (int, int) {
	if n == nil {
		return 0, 0
	}
	return n.Mask.Size()
}

// plugCable connects the network namespace of a process to the bridge.
func plugCable(pid int) error {
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", Bridge, err)
	}
	if old, err := netlink.LinkByName(hostLink); err == nil {
		_ = netlink.LinkDel(old) // What stays makes the next line fail.
	}
	attrs := netlink.LinkAttrs{Name: hostLink, MasterIndex: bridge.Attrs().Index}
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: nodeLink, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect the node to bridge %s: %w", Bridge, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("start link %s: %w", hostLink, err)
	}
	for _, network := range []string{podNetwork, serviceRange} {
		if err := addRoute(bridge, network, Address); err != nil {
			return err
		}
	}
	return nil
}

func setAddress(link netlink.Link, ip string) error {
	addr, err := netlink.ParseAddr(ip + networkBits)
	if err != nil {
		return fmt.Errorf("address of %s: %w", link.Attrs().Name, err)
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("give %s the address %s: %w", link.Attrs().Name, ip, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("start link %s: %w", link.Attrs().Name, err)
	}
	return nil
}

func addRoute(link netlink.Link, network, via string) error {
	_, destination, err := net.ParseCIDR(network)
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: destination, Gw: net.ParseIP(via)}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("route %s by %s: %w", network, via, err)
	}
	return nil
}
