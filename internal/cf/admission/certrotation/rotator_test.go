// SPDX-License-Identifier: Apache-2.0

package certrotation

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

const host = "torpor-webhook.torpor-system.svc"

// Two replicas keep their certificates valid and trusted over several years, on a real API server.
func TestRotatorsOfTwoReplicasAgree(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	namespace := hub.CreateNamespace(t)
	now := clocktesting.NewFakeClock(time.Now())
	replica := func() *Rotator {
		return &Rotator{Reader: hub.Client, Client: hub.Client, Namespace: namespace, Service: "torpor-webhook", Hosts: []string{host, "127.0.0.1"}, Clock: now, Metrics: NewMetrics()}
	}
	first, second := replica(), replica()
	if _, err := first.GetCertificate(nil); err == nil {
		t.Error("expected an error before the first certificate, found none")
	}
	config := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configurationName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "a.torpor.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
		}},
	}
	if err := hub.Client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	sync := func() {
		t.Helper()
		for _, k := range []*Rotator{first, second} {
			if err := k.rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			t.Fatal(err)
		}
	}
	trusted := func() {
		t.Helper()
		for name, k := range map[string]*Rotator{"first": first, "second": second} {
			verify(t, name, k, config.Webhooks[0].ClientConfig.CABundle, now.Now())
		}
	}
	sync()
	trusted()
	serial := first.current.Load().Leaf.SerialNumber

	t.Log("A young certificate stays.")
	now.Step(servingLife / 2)
	sync()
	if first.current.Load().Leaf.SerialNumber.Cmp(serial) != 0 {
		t.Error("expected the same certificate after half its life, found another")
	}
	t.Log("A certificate is replaced before its expiry, with the same authority.")
	now.Step(servingLife / 3)
	before := count(config.Webhooks[0].ClientConfig.CABundle)
	sync()
	trusted()
	if first.current.Load().Leaf.SerialNumber.Cmp(serial) == 0 || count(config.Webhooks[0].ClientConfig.CABundle) != before {
		t.Error("expected another certificate of the same authority")
	}
	t.Log("An authority is replaced before its expiry, and the old one is trusted while it is valid.")
	now.Step(authorityLife * 3 / 4)
	sync()
	trusted()
	if n := count(config.Webhooks[0].ClientConfig.CABundle); n != 2 {
		t.Errorf("expected two authorities to be trusted, found %d", n)
	}
	now.Step(authorityLife / 2)
	sync()
	trusted()
	if n := count(config.Webhooks[0].ClientConfig.CABundle); n != 1 {
		t.Errorf("expected no expired authority, found %d", n)
	}
	t.Log("A configuration without its bundle is repaired.")
	config.Webhooks[0].ClientConfig.CABundle = nil
	if err := hub.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	sync()
	trusted()
}

func verify(t *testing.T, name string, k *Rotator, bundle []byte, now time.Time) {
	t.Helper()
	cert, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatalf("expected certificates in the bundle, found %q", bundle)
	}
	for _, dialled := range []string{host, "127.0.0.1"} {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: dialled, Roots: roots, CurrentTime: now}); err != nil {
			t.Errorf("the %s replica is not trusted as %s: %v", name, dialled, err)
		}
	}
}

func count(bundle []byte) int {
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

func TestDecodeRefusesInvalidAuthorities(t *testing.T) {
	t.Parallel()
	ca, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.encodePEM()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeAuthority(cert, key); err != nil {
		t.Errorf("expected the encoded authority to be decoded, found %v", err)
	}
	other, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := other.encodePEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2][]byte{"nothing": {}, "another's key": {foreign, key}, "no PEM": {[]byte("x"), []byte("y")}} {
		if _, err := decodeAuthority(pair[0], pair[1]); err == nil {
			t.Errorf("%s: expected an error, found none", name)
		}
	}
}
