// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// servingChecks evaluate requests for the certificate of the kubelet's own API. The node itself makes the request,
// and may include only the addresses of its own machine.
func servingChecks() []namedCheck {
	return []namedCheck{
		{"groups", Leave, requireNodeGroups},
		{"usages", Leave, func(c judgedRequest) string { return requireExactUsages(c, certificatesv1.UsageServerAuth) }},
		{"subject", Leave, requireExactSubject},
		{"common-name", Leave, requireNodeCommonName},
		{"user", Leave, requireNodeUser},
		{"extensions", Leave, requireOnlySubjectAltName},
		{"names", Leave, requireOnlyNamesAndIPs},
		{"key", Leave, requireStrongKey},
		{"signature", Leave, requireOwnSignature},
		{"machine", Retry, requireKnownMachine},
		{"one-machine", Retry, requireSingleMachine},
		{"deleting", Leave, requireMachineStays},
		{"node", Retry, requireExistingNode},
		{"node-uid", Leave, requireRecordedNode},
		{"addresses", Retry, requireKnownAddresses},
		{"own-addresses", Leave, requireOwnAddresses},
	}
}

// requireNodeGroups requires exactly a kubelet's groups.
func requireNodeGroups(c judgedRequest) string {
	expected := []string{nodesGroup, "system:authenticated"}
	// The signer would accept additional groups, but a node with such a group is not a plain kubelet.
	if !sameSet(c.req.Spec.Groups, expected) {
		return fmt.Sprintf("expected a requester in the groups %s, found %s", quoteSorted(expected), quoteSorted(c.req.Spec.Groups))
	}
	return ""
}

func requireNodeUser(c judgedRequest) string {
	if user := c.req.Spec.Username; user != c.parsed.Subject.CommonName {
		return fmt.Sprintf("expected the user %s, which the common name contains, found %s", quoteBounded(c.parsed.Subject.CommonName), quoteBounded(user))
	}
	return ""
}
