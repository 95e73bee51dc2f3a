// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	cgroups      = "/sys/fs/cgroup"
	cgroupsLimit = 20 * time.Second
	cgroupPrefix = "torpor-"
)

// cgroupRoot is the node's group in every hierarchy.
func (c Config) cgroupRoot() string { return "/" + cgroupPrefix + c.Name }

// hasCgroupsV1 reports whether the machine has the hierarchies of version 1.
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
