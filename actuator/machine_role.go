// SPDX-License-Identifier: Apache-2.0

package actuator

import (
	"iter"
	"strings"
)

// MachineRole is what a machine is for in its cluster.
type MachineRole string

// The roles. A machine of which nothing is known may be of either.
const (
	UnknownRole      MachineRole = ""
	ControlPlaneRole MachineRole = "control plane"
	WorkerRole       MachineRole = "worker"
)

// FindRole tells what a machine is for by what a cloud knows of it: its labels, which Cluster API, kind and k3d set, or else its name, as
// OpenShift, kubeadm and kind give names. The cluster is what the names of its machines begin with; it may be empty, and labels nil. Where labels differ, or
// a name has words of both roles, it is of the control plane for labels, and what the last word says for names.
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
	// Each provider of Cluster API has a key of its own, such as sigs.k8s.io/cluster-api-provider-aws/role.
	isClusterAPI := strings.HasPrefix(key, "sigs.k8s.io") && strings.Contains(key, "cluster-api-provider") && strings.HasSuffix(key, "role")
	if !isClusterAPI && key != "capg-role" && key != "io.x-k8s.kind.role" && key != "k3d.role" {
		return UnknownRole
	}
	switch value {
	// The API server of kind and k3d is reached by their load balancers.
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
	// The cluster may be called after a role itself.
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
