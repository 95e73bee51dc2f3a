// SPDX-License-Identifier: Apache-2.0

package actuator

import (
	"iter"
	"strings"
)

// MachineRole is the role of a machine in its cluster.
type MachineRole string

// The roles. A machine of unknown role may have either role.
const (
	UnknownRole      MachineRole = ""
	ControlPlaneRole MachineRole = "control plane"
	WorkerRole       MachineRole = "worker"
)

// FindRole returns the role of a machine. Labels that Cluster API, kind and k3d set take precedence; otherwise the
// role is read from the name, which follows the patterns of OpenShift, kubeadm and kind. cluster is the prefix of
// the names of the cluster's machines; it may be empty, and labels may be nil. If labels contradict each other, the
// control plane takes precedence. If a name contains words of both roles, the last word takes precedence.
func FindRole(labels iter.Seq2[string, string], cluster, name string) MachineRole {
	role := UnknownRole
	if labels != nil {
		for key, value := range labels {
			if found := roleOfLabel(key, value); found == ControlPlaneRole || role == UnknownRole {
				role = found
			}
		}
	}
	if role != UnknownRole {
		return role
	}
	return roleOfName(cluster, name)
}

func roleOfLabel(key, value string) MachineRole {
	// Each provider of Cluster API has its own key, such as sigs.k8s.io/cluster-api-provider-aws/role.
	isClusterAPI := strings.HasPrefix(key, "sigs.k8s.io") && strings.Contains(key, "cluster-api-provider") && strings.HasSuffix(key, "role")
	if !isClusterAPI && key != "capg-role" && key != "io.x-k8s.kind.role" && key != "k3d.role" {
		return UnknownRole
	}
	switch value {
	// kind and k3d run a load balancer through which clients reach the API server. It counts as control plane.
	case "control-plane", "master", "server", "external-load-balancer", "loadbalancer":
		return ControlPlaneRole
	case "node", "worker", "agent":
		return WorkerRole
	default:
		return UnknownRole
	}
}

func roleOfName(cluster, name string) MachineRole {
	name, cluster = strings.ToLower(name), strings.ToLower(cluster)
	// The name of the cluster is removed first, because it may itself contain the name of a role.
	words := strings.FieldsFunc(strings.TrimPrefix(name, cluster), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	role, before := UnknownRole, ""
	for _, word := range words {
		word = strings.TrimRight(word, "0123456789")
		switch {
		case word == "master", word == "controlplane", before == "control" && word == "plane":
			role = ControlPlaneRole
		case word == "worker":
			role = WorkerRole
		}
		before = word
	}
	return role
}
