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
	// spareRequests is how many undecided requests are tolerated in addition to one per machine or node.
	spareRequests = 100
	// tokenIDLength is the length of the public part of a bootstrap token.
	tokenIDLength = 6
)

// KnownMachine is one machine that may request node certificates.
type KnownMachine struct {
	// NodeName is the node name that the machine may take: the name of its Node, or its InternalDNS address. It
	// is compared without regard to case or a trailing dot.
	NodeName string
	// Addresses are what a serving certificate may name: Hostname, InternalDNS and ExternalDNS
	// as DNS names; InternalIP, ExternalIP and a Hostname in IP form as IP addresses.
	Addresses []corev1.NodeAddress
	// ControlPlane allows ControlPlaneGroups of a Bootstrapper.
	ControlPlane bool
	// Deleting machines get no certificate.
	Deleting bool
	// NodeUID is the UID of the Node as recorded before the hibernation; "" if unknown.
	NodeUID types.UID
}

// ExistingNode is a Node object that exists at present.
type ExistingNode struct {
	Name string
	UID  types.UID
	// HasReported is true if the node has reported since the resume began, so that it needs no client
	// certificate.
	HasReported bool
}

// NodeInventory holds every fact that a verdict depends on, except the request itself.
type NodeInventory struct {
	Machines []KnownMachine
	Nodes    []ExistingNode
	// Bootstrappers may request client certificates. Without any, no client request is approved.
	Bootstrappers []BootstrapIdentity
	// NotBefore is the start of the resume minus the clock skew. Requests created earlier are left pending.
	// Creation times have whole seconds, so the fraction is ignored. While it is zero, no request is approved.
	NotBefore time.Time
	// NotAfter is the end of the time in which requests are approved.
	NotAfter time.Time
	// ClientsFrom is the time from which client requests are approved; zero means never in this resume.
	ClientsFrom time.Time
	// Now is the time of judging.
	Now time.Time
	// ClockAhead is how far the cluster's clock, which dates requests and approvals, is ahead of the hub's;
	// negative if it is behind.
	ClockAhead time.Duration
	// LastApprovals are when client requests were last approved in this resume, by node name.
	LastApprovals map[string]time.Time
	// SentApprovals are when this process approved requests, by UID, whether or not the cluster shows the
	// approval.
	SentApprovals map[types.UID]time.Time
	// MaxPending is how many undecided serving requests, and how many approved client requests, JudgeAll
	// tolerates. Zero means 100 more than there are machines or nodes.
	MaxPending int
}

func (inv NodeInventory) maxPending() int {
	if inv.MaxPending > 0 {
		return inv.MaxPending
	}
	return max(len(inv.Machines), len(inv.Nodes)) + spareRequests
}

// BootstrapIdentity is an identity that may request client certificates in the name of a machine.
type BootstrapIdentity struct {
	// User is the exact user name, or with TokenUser the part before the token id.
	User string
	// TokenUser is true if User is followed by a bootstrap token id: six characters of a-z and 0-9.
	TokenUser bool
	// Groups are the exact groups that the user must have.
	Groups []string
	// ControlPlaneGroups are accepted instead of Groups for control-plane machines; nil means none.
	ControlPlaneGroups []string
	// ExtraGroupPrefix allows further groups that start with it and are longer; "" allows none.
	ExtraGroupPrefix string
}

// OpenShiftIdentity is the service account with which new and returning machines of OpenShift make requests.
// The token of the first control-plane machines lacks the group of all service accounts.
func OpenShiftIdentity() BootstrapIdentity {
	const namespaceGroup = "system:serviceaccounts:openshift-machine-config-operator"
	return BootstrapIdentity{
		User:               "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
		Groups:             []string{namespaceGroup, "system:serviceaccounts", "system:authenticated"},
		ControlPlaneGroups: []string{namespaceGroup, "system:authenticated"},
	}
}

// TokenIdentity is any holder of a bootstrap token of plain Kubernetes.
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
