// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// spareRequests is the number of undecided requests that are tolerated in addition to one per machine or node.
	spareRequests = 100
	// tokenIDLength is the length of the public part of a bootstrap token.
	tokenIDLength = 6
)

// KnownMachine is one machine that may request node certificates.
type KnownMachine struct {
	// NodeName is the node name that the machine may use: the name of its Node, or its InternalDNS address. The
	// comparison ignores case and a trailing dot.
	NodeName string
	// Addresses are the addresses that a serving certificate may contain: Hostname, InternalDNS and ExternalDNS as
	// DNS names; InternalIP, ExternalIP and a Hostname in IP form as IP addresses.
	Addresses []corev1.NodeAddress
	// ControlPlane allows the ControlPlaneGroups of a BootstrapIdentity.
	ControlPlane bool
	// Deleting is true if the machine is being deleted. Such a machine gets no certificate.
	Deleting bool
	// NodeUID is the UID of the Node as recorded before the hibernation; "" if unknown.
	NodeUID types.UID
}

// ExistingNode is a Node object that currently exists.
type ExistingNode struct {
	Name string
	UID  types.UID
	// HasReported is true if the node has reported since the resume began. Such a node needs no client certificate.
	HasReported bool
}

// NodeInventory contains every fact that a verdict depends on, except the request itself.
type NodeInventory struct {
	Machines []KnownMachine
	Nodes    []ExistingNode
	// Bootstrappers may request client certificates. If there are none, no client request is approved.
	Bootstrappers []BootstrapIdentity
	// NotBefore is the start of the resume minus the clock skew. Requests created earlier are left pending. Creation
	// times have whole seconds, so the fraction is ignored. While NotBefore is zero, no request is approved.
	NotBefore time.Time
	// NotAfter is the end of the time in which requests are approved.
	NotAfter time.Time
	// ClientsFrom is the time from which client requests are approved; zero means never in this resume.
	ClientsFrom time.Time
	// Now is the time of the evaluation.
	Now time.Time
	// ClockAhead is how far the cluster's clock is ahead of the hub's; negative if it is behind. The timestamps of
	// requests and approvals come from the cluster's clock.
	ClockAhead time.Duration
	// LastApprovals are the times, by node name, at which client requests were last approved in this resume.
	LastApprovals map[string]time.Time
	// SentApprovals are the times, by UID, at which this process approved requests, whether or not the cluster shows
	// the approval.
	SentApprovals map[types.UID]time.Time
	// MaxPending is the number of undecided serving requests, and of approved client requests, that JudgeAll
	// tolerates. Zero means 100 more than there are machines or nodes.
	MaxPending int
}

func (inv NodeInventory) maxPending() int {
	if inv.MaxPending > 0 {
		return inv.MaxPending
	}
	return max(len(inv.Machines), len(inv.Nodes)) + spareRequests
}

// BootstrapIdentity is an identity that may request client certificates on behalf of a machine.
type BootstrapIdentity struct {
	// User is the exact user name, or with TokenUser the part before the token id.
	User string
	// TokenUser is true if User is followed by a bootstrap token id: six characters of a-z and 0-9.
	TokenUser bool
	// Groups are the exact groups that the user must have.
	Groups []string
	// ControlPlaneGroups are accepted instead of Groups for control-plane machines; nil means none.
	ControlPlaneGroups []string
	// ExtraGroupPrefix allows additional groups that start with the prefix and are longer; "" allows none.
	ExtraGroupPrefix string
}

// OpenShiftIdentity returns the service account with which new and returning OpenShift machines make requests. The
// token of the first control-plane machines lacks the group of all service accounts.
func OpenShiftIdentity() BootstrapIdentity {
	const namespaceGroup = "system:serviceaccounts:openshift-machine-config-operator"
	return BootstrapIdentity{
		User:               "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
		Groups:             []string{namespaceGroup, "system:serviceaccounts", "system:authenticated"},
		ControlPlaneGroups: []string{namespaceGroup, "system:authenticated"},
	}
}

// TokenIdentity returns the identity of any holder of a bootstrap token of plain Kubernetes.
func TokenIdentity() BootstrapIdentity {
	return BootstrapIdentity{
		User:             "system:bootstrap:",
		TokenUser:        true,
		Groups:           []string{"system:bootstrappers", "system:authenticated"},
		ExtraGroupPrefix: "system:bootstrappers:",
	}
}

func (b BootstrapIdentity) isUser(name string) bool {
	if !b.TokenUser {
		return name == b.User
	}
	id, ok := strings.CutPrefix(name, b.User)
	return ok && len(id) == tokenIDLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func (b BootstrapIdentity) hasGroups(groups []string, controlPlane bool) bool {
	own := slices.DeleteFunc(slices.Clone(groups), b.isExtraGroup)
	if sameSet(own, b.Groups) {
		return true
	}
	return controlPlane && b.ControlPlaneGroups != nil && sameSet(own, b.ControlPlaneGroups)
}

func (b BootstrapIdentity) isExtraGroup(group string) bool {
	rest, ok := strings.CutPrefix(group, b.ExtraGroupPrefix)
	return ok && b.ExtraGroupPrefix != "" && rest != ""
}
