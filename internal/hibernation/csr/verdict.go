// SPDX-License-Identifier: Apache-2.0

package csr

// Decision is what to do with a request.
type Decision string

// The decisions. There is none for denying.
const (
	// Approve: every check passed.
	Approve Decision = "Approve"
	// Leave: not ours, or rejected; the request stays pending.
	Leave Decision = "Leave"
	// Retry: facts are missing now; judge again with a newer inventory, for as long as the caller cares to.
	Retry Decision = "Retry"
	// Skip: already approved, denied, failed or issued.
	Skip Decision = "Skip"
)

// CertificateKind is the kind of certificate that a request asks for.
type CertificateKind string

// The kinds. A request of any other signer has the kind "".
const (
	Client  CertificateKind = "client"
	Serving CertificateKind = "serving"
)

// Verdict is the answer for one request.
type Verdict struct {
	// Name is the name of the request.
	Name     string
	Decision Decision
	// Rule names the check that decided, or "accepted".
	Rule string
	// Reason says what was expected and what was found. It is stable and bounded, and holds no key material.
	Reason string
	// NodeName is the node that the request names, if a machine of the inventory may take it; else "".
	// Only with Approve has the requester shown any right to it.
	NodeName string
	Kind     CertificateKind
}
