// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// clientChecks are for the certificate by which a kubelet speaks to the API server. Its old one
// is no longer valid, so a bootstrapper asks, and only for a node that was there before the sleep.
func clientChecks() []check {
	return []check{
		{"user", Leave, askedByBootstrapper},
		{"groups", Leave, bootstrapperGroups},
		{"usages", Leave, func(c candidate) string { return exactUsages(c, certificatesv1.UsageClientAuth) }},
		{"subject", Leave, exactSubject},
		{"common-name", Leave, namesNode},
		{"extensions", Leave, noExtensions},
		{"key", Leave, strongKey},
		{"signature", Leave, ownSignature},
		{"machine", Leave, machineKnown},
		{"one-machine", Retry, oneMachine},
		{"deleting", Leave, machineStays},
		{"node", Leave, nodeExists},
		{"node-uid", Leave, sameNode},
	}
}

func askedByBootstrapper(c candidate) string {
	if len(c.bootstrappers()) > 0 {
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
	return fmt.Sprintf("expected the user to be one of %s, found %s", listed(users), quoted(c.req.Spec.Username))
}

func bootstrapperGroups(c candidate) string {
	controlPlane := len(c.machines) == 1 && c.machines[0].ControlPlane
	var expected []string
	for _, b := range c.bootstrappers() {
		if b.hasGroups(c.req.Spec.Groups, controlPlane) {
			return ""
		}
		expected = append(expected, listed(b.Groups))
	}
	return fmt.Sprintf("expected the groups %s, found %s", strings.Join(expected, " or "), listed(c.req.Spec.Groups))
}

func namesNode(c candidate) string {
	if name := c.parsed.Subject.CommonName; name != nodeUserPrefix+c.nodeName || c.nodeName == "" {
		return fmt.Sprintf("expected the common name %q and a node name, found %s", nodeUserPrefix, quoted(name))
	}
	return ""
}

// bootstrappers returns those that carry the user name of the request.
func (c candidate) bootstrappers() []Bootstrapper {
	return slices.DeleteFunc(slices.Clone(c.inv.Bootstrappers), func(b Bootstrapper) bool {
		return !b.isUser(c.req.Spec.Username)
	})
}
