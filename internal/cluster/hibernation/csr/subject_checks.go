// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const nodesGroup = "system:nodes"

// requireExactSubject requires one common name, one organisation, and no further attribute.
func requireExactSubject(c judgedRequest) string {
	subject := c.parsed.Subject
	// Names contains every attribute. The other fields hide attributes that are repeated, unknown or not strings.
	if len(subject.Names) != 2 || subject.CommonName == "" || len(subject.Organization) != 1 {
		attributes := make([]string, 0, len(subject.Names))
		for _, name := range subject.Names {
			attributes = append(attributes, name.Type.String())
		}
		return "expected a subject of one common name (2.5.4.3) and one organisation (2.5.4.10), found " + quoteSorted(attributes)
	}
	if organisation := subject.Organization[0]; organisation != nodesGroup {
		return fmt.Sprintf("expected the organisation %q, found %s", nodesGroup, quoteBounded(organisation))
	}
	return ""
}

// requireExactUsages allows key encipherment in addition to the required usages.
func requireExactUsages(c judgedRequest, auth certificatesv1.KeyUsage) string {
	least := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, auth}
	// Older kubelets request key encipherment with every key. Newer kubelets request it only with RSA keys.
	most := append(slices.Clone(least), certificatesv1.UsageKeyEncipherment)
	if found := c.req.Spec.Usages; !sameSet(found, least) && !sameSet(found, most) {
		return fmt.Sprintf("expected the usages %s, with or without %q, found %s",
			quoteSorted(least), certificatesv1.UsageKeyEncipherment, quoteSorted(found))
	}
	return ""
}
