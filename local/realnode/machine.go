// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
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

const (
	cgroups      = "/sys/fs/cgroup"
	cgroupsLimit = 20 * time.Second
	cgroupPrefix = "torpor-"
)

func (c Config) cgroupRoot() string { return "/" + cgroupPrefix + c.Name }

func hasCgroupsV1() bool {
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	return err != nil
}

// findCgroupHierarchies are where a container has to have a group.
func findCgroupHierarchies() ([]string, error) {
	if !hasCgroupsV1() {
		return []string{cgroups}, nil
	}
	var found []string
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "hugetlb", "net_cls", "net_prio", "perf_event"} {
		if _, err := os.Stat(filepath.Join(cgroups, controller)); err == nil {
			found = append(found, filepath.Join(cgroups, controller))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("expected cgroups below %s, found none: a node cannot run without", cgroups)
	}
	return found, nil
}

// makeCgroups makes the node's groups anew; what a killed node has left goes first.
func (c Config) makeCgroups(ctx context.Context) error {
	if err := removeCgroups(ctx, c.cgroupRoot()); err != nil {
		return err
	}
	all, err := findCgroupHierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range all {
		group := filepath.Join(hierarchy, c.cgroupRoot())
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if filepath.Base(hierarchy) != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // They start empty, and an empty set runs nothing.
			data, err := os.ReadFile(filepath.Join(hierarchy, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("fill cgroup: %w", err)
			}
		}
	}
	return nil
}

// removeCgroups waits until the kernel has reaped what was in them. The parts make some beside those of makeCgroups.
func removeCgroups(ctx context.Context, name string) error {
	var roots []string
	for _, pattern := range []string{filepath.Join(cgroups, name), filepath.Join(cgroups, "*", name)} {
		// Version 1 has the group in each hierarchy, version 2 in the only one.
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("list cgroups: %w", err)
		}
		roots = append(roots, found...)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, cgroupsLimit, true, func(context.Context) (bool, error) {
		last = nil
		for _, root := range roots {
			last = errors.Join(last, removeCgroupTree(root))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove the node's cgroups: %w: %w", err, last)
	}
	return nil
}

func removeCgroupTree(root string) error {
	var groups []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, group := range slices.Backward(groups) {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
