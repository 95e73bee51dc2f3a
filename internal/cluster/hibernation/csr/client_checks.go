// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// clientChecks evaluate requests for the certificate with which a kubelet authenticates to the API server. The old
// certificate is no longer valid, so a bootstrap identity makes the request. The request is approved only for an
// existing node, whose UID must match the recorded UID if there is one.
func clientChecks() []namedCheck {
	return []namedCheck{
		{"sleep", Leave, requireRecordedSleep},
		{"grace", Retry, requireTimeToReport},
		{"groups", Leave, requireBootstrapGroups},
		{"usages", Leave, func(c judgedRequest) string { return requireExactUsages(c, certificatesv1.UsageClientAuth) }},
		{"subject", Leave, requireExactSubject},
		{"common-name", Leave, requireNodeCommonName},
		{"extensions", Leave, requireNoExtensions},
		{"key", Leave, requireStrongKey},
		{"signature", Leave, requireOwnSignature},
		{"machine", Leave, requireKnownMachine},
		{"one-machine", Retry, requireSingleMachine},
		{"deleting", Leave, requireMachineStays},
		{"node", Leave, requireExistingNode},
		{"node-uid", Leave, requireRecordedNode},
		{"missing", Leave, requireMissingNode},
		{"one-per-node", Retry, requireNoRecentApproval},
	}
}

func requireRecordedSleep(c judgedRequest) string {
	if c.inv.ClientsFrom.IsZero() {
		return "expected a resume after a hibernation, found a restart of machines that were stopped outside Torpor"
	}
	return ""
}

func requireTimeToReport(c judgedRequest) string {
	if c.inv.Now.Before(c.inv.ClientsFrom) {
		return "expected the resume to have begun long enough ago for running nodes to report, found a more recent resume"
	}
	return ""
}

// requireMissingNode relies on requireExistingNode, which checks that the node exists. Every machine of a cluster has
// the bootstrap identity, and must not be able to obtain the identity of a healthy node.
func requireMissingNode(c judgedRequest) string {
	if c.inv.Nodes[c.inv.nodeIndex(c.nodeName)].HasReported {
		return fmt.Sprintf("expected node %s not to have reported since the resume, found that the node has reported", quoteBounded(c.nodeName))
	}
	return ""
}

func requireNoRecentApproval(c judgedRequest) string {
	if at, ok := c.inv.LastApprovals[c.nodeName]; ok && c.inv.Now.Sub(at) < ApprovalPause {
		return fmt.Sprintf("expected no other client request of node %s to be approved within %s, found one", quoteBounded(c.nodeName), ApprovalPause)
	}
	return ""
}

func requireBootstrapUser(c judgedRequest) string {
	if len(c.identitiesOfUser()) > 0 {
		return ""
	}
	var users []string
	for _, b := range c.inv.Bootstrappers {
		if b.TokenUser {
			users = append(users, b.User+"<token id>")
			continue
		}
		users = append(users, b.User)
	}
	return fmt.Sprintf("expected the user to be one of %s, found %s", quoteSorted(users), quoteBounded(c.req.Spec.Username))
}

func requireBootstrapGroups(c judgedRequest) string {
	// The groups of control-plane machines are accepted only if it is certain which machine makes the request.
	controlPlane := len(c.machines) == 1 && c.machines[0].ControlPlane
	var expected []string
	for _, b := range c.identitiesOfUser() {
		if b.hasGroups(c.req.Spec.Groups, controlPlane) {
			return ""
		}
		expected = append(expected, quoteSorted(b.Groups))
	}
	return fmt.Sprintf("expected a requester in the groups %s, found %s", strings.Join(expected, " or "), quoteSorted(c.req.Spec.Groups))
}

func requireNodeCommonName(c judgedRequest) string {
	if name := c.parsed.Subject.CommonName; name != nodeUserPrefix+c.nodeName || c.nodeName == "" {
		return fmt.Sprintf("expected the common name %q followed by a node name, found %s", nodeUserPrefix, quoteBounded(name))
	}
	return ""
}

// identitiesOfUser returns the identities with the request's user name.
func (c judgedRequest) identitiesOfUser() []BootstrapIdentity {
	return slices.DeleteFunc(slices.Clone(c.inv.Bootstrappers), func(b BootstrapIdentity) bool {
		return !b.isUser(c.req.Spec.Username)
	})
}
