// SPDX-License-Identifier: Apache-2.0

package stopcheck

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	// nearMargin is how long before its certificates expire a cluster should be awake: OpenShift renews them in their last fifth.
	nearMargin = 3 * 24 * time.Hour
	// sameCertificates is how far apart certificates of several API servers behind one address may expire: one that is seen a little later is
	// that of another server, and not a new one.
	sameCertificates = 24 * time.Hour
	// maxAuthorities is how many certificates a bundle may have.
	maxAuthorities = 100
	// signerName begins the name of the authority that signs kubelets' certificates on OpenShift, whose bundle has others beside it.
	signerName = "kube-csr-signer"
)

// AddServingCertificate notes when the certificate expires that the API server was verified by; zero is not known.
func (s *Survey) AddServingCertificate(expiry time.Time) { s.addExpiry(expiry) }

// AddSigner notes when the authority expires that signs kubelets' certificates.
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

// signerExpiry returns when the authority of kubelets' certificates expires. A bundle has those from before a renewal, too, so that the one
// that expires last counts.
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

// ServingExpiry returns when the first certificate expires of those that an API server was verified by; of several chains the one that
// lasts longest counts.
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

// nextWakeBy stays as it is while another server of the cluster answers.
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
