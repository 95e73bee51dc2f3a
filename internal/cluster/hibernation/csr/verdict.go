// SPDX-License-Identifier: Apache-2.0

package csr

import "k8s.io/apimachinery/pkg/types"

// Decision is the decision on a request.
type Decision string

// The decisions. Requests are never denied.
const (
	// Approve is for a request that passed every check.
	Approve Decision = "Approve"
	// Leave is for a request of another signer, or one that is rejected; it stays pending.
	Leave Decision = "Leave"
	// Retry is for a request that lacks facts; it is judged again with a newer inventory.
	Retry Decision = "Retry"
	// Skip is for a request that is approved, denied, failed or issued.
	Skip Decision = "Skip"
)

// CertificateKind is the kind of the requested certificate.
type CertificateKind string

// The kinds. A request of any other signer has the kind "".
const (
	Client  CertificateKind = "client"
	Serving CertificateKind = "serving"
)

// Verdict is the result for one request.
type Verdict struct {
	// Name is the name of the request, and UID its identity.
	Name     string
	UID      types.UID
	Decision Decision
	// Rule names the check that decided, or "accepted".
	Rule string
	// Reason describes what was expected and found. It is stable and bounded, and contains no key material.
	Reason string
	// NodeName is the node that the request names, if a machine of the inventory may take it; else "". Only
	// with Approve has the requester proved a right to it.
	NodeName string
	Kind     CertificateKind
}
