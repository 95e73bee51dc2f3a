// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// nearMargin is the remaining validity below which a certificate causes a finding. OpenShift renews certificates in
	// the last fifth of their validity.
	nearMargin = 3 * 24 * time.Hour
	// sameCertificates is the maximum difference between the expiries of the certificates of API servers behind one
	// address. An expiry that is only slightly later belongs to the certificate of another server, not to a renewed
	// certificate.
	sameCertificates = 24 * time.Hour
	// maxAuthorities is the maximum number of certificates that are read from a bundle.
	maxAuthorities = 100
	// signerName is the prefix of the name of the certificate authority that signs kubelets' certificates on
	// OpenShift. The bundle also contains other authorities.
	signerName = "kube-csr-signer"
)

// AddServingCertificate records when the verified certificate chain of the API server expires. A zero time means that
// this is unknown.
func (s *Survey) AddServingCertificate(expiry time.Time) { s.addExpiry(expiry) }

// AddSigner records the expiry of the certificate authority that signs kubelets' certificates.
func (s *Survey) AddSigner(item []byte) {
	var c struct {
		Data struct {
			Bundle string `json:"client-ca-file"`
		} `json:"data"`
	}
	if len(item) <= MaxItemBytes && decode(item, &c) == nil {
		s.addExpiry(signerExpiry(c.Data.Bundle))
	}
}

func (s *Survey) addExpiry(at time.Time) {
	if !at.IsZero() && (s.wakeBy.IsZero() || at.Before(s.wakeBy)) {
		s.wakeBy = at
	}
}

// signerExpiry returns the expiry of the certificate authority that signs kubelets' certificates. After a renewal a
// bundle still contains the earlier authorities, so the latest expiry is returned. If no authority has the name of the
// signer, the latest expiry of all authorities is returned.
func signerExpiry(bundle string) time.Time {
	var last, lastNamed time.Time
	rest := []byte(bundle)
	for range maxAuthorities {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if last.Before(authority.NotAfter) {
			last = authority.NotAfter
		}
		if strings.HasPrefix(authority.Subject.CommonName, signerName) && lastNamed.Before(authority.NotAfter) {
			lastNamed = authority.NotAfter
		}
	}
	if !lastNamed.IsZero() {
		return lastNamed
	}
	return last
}

// ServingExpiry returns when the verified certificate chain of an API server expires, which is the earliest expiry
// in the chain. If several chains were verified, it returns the latest of their expiries.
func ServingExpiry(chains [][]*x509.Certificate) time.Time {
	var best time.Time
	for _, chain := range chains {
		var first time.Time
		for _, c := range chain {
			if first.IsZero() || c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if best.Before(first) {
			best = first
		}
	}
	return best
}

// nextWakeBy returns the new status.hibernationCheck.wakeBy. The previous time is kept if no expiry was observed, or if
// the observed one is only slightly later, because that one belongs to another API server behind the same address.
func nextWakeBy(before *hivev1.HibernationCheck, seen time.Time) *metav1.Time {
	var known *metav1.Time
	if before != nil {
		known = before.WakeBy
	}
	switch {
	case seen.IsZero():
		return known
	case known != nil && !seen.Before(known.Time) && seen.Sub(known.Time) < sameCertificates:
		return known
	default:
		return new(metav1.NewTime(seen.Truncate(time.Second)))
	}
}
