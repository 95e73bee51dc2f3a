// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"slices"
	"strings"
)

// ControllerNames returns the names of the groups that --controllers accepts, in the order of their setup.
func ControllerNames() []string {
	var names []string
	for _, f := range listFeatures(Config{}, sharedParts{}) {
		names = append(names, f.name)
	}
	return names
}

// SelectControllers returns the groups that a list such as "*,-hibernation" enables: a name enables a group, a name
// after a minus disables it, and * enables all groups that the list does not name. An empty list means "*".
func SelectControllers(list []string) ([]string, error) {
	known := ControllerNames()
	for _, entry := range list {
		if name := strings.TrimPrefix(entry, "-"); entry != "*" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("--controllers: expected *, NAME or -NAME of %s, found %q", strings.Join(known, ", "), entry)
		}
	}
	var enabled []string
	for _, name := range known {
		off, on := slices.Contains(list, "-"+name), slices.Contains(list, name)
		if off && on {
			return nil, fmt.Errorf("--controllers: expected %[1]s once, found %[1]s and -%[1]s", name)
		}
		if on || !off && (len(list) == 0 || slices.Contains(list, "*")) {
			enabled = append(enabled, name)
		}
	}
	if len(enabled) == 0 {
		return nil, fmt.Errorf("--controllers: expected at least one of %s, found %q, which enables none", strings.Join(known, ", "), strings.Join(list, ","))
	}
	return enabled, nil
}

// partOf returns the part of a group of controllers. One replica leads all groups of a part, because they share memory:
// the group slumber reads which objects the groups workloads and adapters stop, and the groups of apps share a cache of
// Pods.
func partOf(controllers string) string {
	switch controllers {
	case "hibernation", "sync", "machinepools":
		return "clusters"
	case "slumber", "workloads", "adapters":
		return "switches"
	case "clustering", "provisioning", "backup":
		return "databases"
	default:
		return "apps"
	}
}

// listParts returns the enabled groups of controllers by part.
func (c Config) listParts() map[string][]string {
	parts := map[string][]string{}
	for _, name := range c.enabled {
		parts[partOf(name)] = append(parts[partOf(name)], name)
	}
	return parts
}
