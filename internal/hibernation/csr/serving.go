// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// servingChecks are for the certificate that a kubelet shows to those who call it. The node asks
// for itself and may name nothing but its own machine's addresses.
func servingChecks() []check {
	return []check{
		{"groups", Leave, nodeGroups},
		{"usages", Leave, func(c candidate) string { return exactUsages(c, certificatesv1.UsageServerAuth) }},
		{"subject", Leave, exactSubject},
		{"common-name", Leave, namesNode},
		{"user", Leave, askedByNode},
		{"extensions", Leave, onlySubjectAltName},
		{"names", Leave, onlyNamesAndIPs},
		{"key", Leave, strongKey},
		{"signature", Leave, ownSignature},
		{"machine", Retry, machineKnown},
		{"one-machine", Retry, oneMachine},
		{"deleting", Leave, machineStays},
		{"node", Retry, nodeExists},
		{"node-uid", Leave, sameNode},
		{"addresses", Retry, addressesKnown},
		{"own-addresses", Leave, ownAddresses},
	}
}

// nodeGroups is stricter than a superset: a node with a further group is not a plain kubelet.
func nodeGroups(c candidate) string {
	expected := []string{nodesGroup, "system:authenticated"}
	if !sameSet(c.req.Spec.Groups, expected) {
		return fmt.Sprintf("expected the groups %s, found %s", listed(expected), listed(c.req.Spec.Groups))
	}
	return ""
}

func askedByNode(c candidate) string {
	if user := c.req.Spec.Username; user != c.parsed.Subject.CommonName {
		return fmt.Sprintf("expected the user %s as in the common name, found %s", quoted(c.parsed.Subject.CommonName), quoted(user))
	}
	return ""
}
