// SPDX-License-Identifier: Apache-2.0

package csr

import "k8s.io/apimachinery/pkg/types"

// Decision is the decision on a request.
type Decision string

// The decisions. Requests are never denied.
const (
	// Approve is the decision on a request that passed every check.
	Approve Decision = "Approve"
	// Leave is the decision on a request that has another signer or is rejected. The request stays pending.
	Leave Decision = "Leave"
	// Retry is the decision on a request that cannot be decided yet. It is evaluated again with a newer inventory.
	Retry Decision = "Retry"
	// Skip is the decision on a request that is approved, denied, failed or issued.
	Skip Decision = "Skip"
)

// CertificateKind is the kind of the requested certificate.
type CertificateKind string

// A request for any other signer has the kind "".
const (
	Client  CertificateKind = "client"
	Serving CertificateKind = "serving"
)

// Verdict is the result for one request.
type Verdict struct {
	// Name is the request's name, and UID its identity.
	Name     string
	UID      types.UID
	Decision Decision
	// Rule is the name of the check that determined the decision, or "accepted".
	Rule string
	// Reason describes the expected and the found value. It is stable and limited in length, and contains no key
	// material.
	Reason string
	// NodeName is the name of the node in the request. It is empty if no machine in the inventory may use that name. Only
	// the decision Approve means that the requester has proved its right to the name.
	NodeName string
	Kind     CertificateKind
}
