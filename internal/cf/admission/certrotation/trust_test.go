// SPDX-License-Identifier: Apache-2.0

package certrotation

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// newRotator returns the Rotator of an installation in the namespace.
func newRotator(hub *testenv.Environment, namespace string) *Rotator {
	return &Rotator{
		Reader: hub.Client, Client: hub.Client, Namespace: namespace, Service: "torpor-webhook", ServesApps: true, Kind: korifiv1alpha1.CFAppKind(),
		Hosts: []string{"torpor-webhook." + namespace + ".svc"}, Clock: clock.RealClock{}, Metrics: NewMetrics(),
	}
}

// expectTrust rotates the certificate. It expects a ready replica, or an error with the given texts.
func (r *Rotator) expectTrust(t *testing.T, words ...string) {
	t.Helper()
	failure := r.rotate(t.Context())
	found := r.CheckTrust(nil)
	if len(words) == 0 {
		if err := errors.Join(failure, found); err != nil {
			t.Errorf("expected the API server to trust the replica, found %v", err)
		}
		return
	}
	for _, w := range words {
		if found == nil || !strings.Contains(found.Error(), w) {
			t.Errorf("expected the replica to be unready with %q, found %v", w, found)
		}
	}
}

func TestReplicaIsReadyWhileTheAPIServerTrustsIt(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "torpor-system"}})
	first, second := newRotator(hub, "torpor-system"), newRotator(hub, hub.CreateNamespace(t))
	if err := first.CheckTrust(nil); !errors.Is(err, errNoCertificate) {
		t.Errorf("expected a replica to be unready before its first check, found %v", err)
	}
	first.expectTrust(t)

	t.Log("Once apps are served, the configurations must exist, unless the manager has no controllers of apps.")
	hub.InstallCRDs(t)
	first.ServesApps = false
	first.expectTrust(t)
	first.ServesApps = true
	first.expectTrust(t, "MutatingWebhookConfiguration torpor, found none: apply config/webhook", "ValidatingWebhookConfiguration torpor, found none")
	hub.ApplyManifest(t, "webhook/manifests.yaml")
	first.expectTrust(t)

	t.Log("Another installation reports the target of the configurations, and writes nothing.")
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	read := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
		t.Helper()
		if err := hub.Client.Get(t.Context(), client.ObjectKey{Name: configurationName}, config); err != nil {
			t.Fatal(err)
		}
		return config
	}
	changes, last := 0, read().ResourceVersion
	for range 5 {
		for _, r := range []*Rotator{second, first} {
			_ = r.rotate(t.Context()) // The next statement checks the result.
			if now := read().ResourceVersion; now != last {
				changes, last = changes+1, now
			}
		}
	}
	if changes != 0 {
		t.Errorf("expected no change in five rounds of two installations, found %d", changes)
	}
	second.expectTrust(t, "to point to the Service "+second.Namespace+"/torpor-webhook of this installation, found torpor-webhook.torpor-system.svc")
	first.expectTrust(t)

	t.Log("Another controller may maintain the bundle; Torpor does not write it, but checks it.")
	first.LeavesBundles = true
	own := read().Webhooks[0].ClientConfig.CABundle
	other, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	inject := func(bundle []byte) {
		t.Helper()
		read().Webhooks[0].ClientConfig.CABundle = bundle
		if err := hub.Client.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	inject(other.certificatePEM())
	first.expectTrust(t, "expected the ValidatingWebhookConfiguration torpor to trust the certificate of this replica")
	if now := read().ResourceVersion; now == last || string(config.Webhooks[0].ClientConfig.CABundle) != string(other.certificatePEM()) {
		t.Error("expected the bundle of the other controller to stay, found another")
	}
	inject(own)
	first.expectTrust(t)
}

// With a certificate from files, which the user's own PKI issues, Torpor writes no objects.
func TestCertificateFromFiles(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t)
	hub.ApplyManifest(t, "webhook/manifests.yaml")
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "torpor-system"}})
	r := newRotator(hub, "torpor-system")
	ca, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	served, err := ca.issueServing(time.Now(), r.Hosts...)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(served.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		corev1.TLSCertKey: {Type: "CERTIFICATE", Bytes: served.Certificate[0]}, corev1.TLSPrivateKeyKey: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r.Files, err = certwatcher.New(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey)); err != nil {
		t.Fatal(err)
	}
	r.expectTrust(t)
	if cert, err := r.GetCertificate(nil); err != nil || cert.Leaf.SerialNumber.Cmp(served.Leaf.SerialNumber) != 0 {
		t.Errorf("expected the certificate of the files, found another (%v)", err)
	}
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}}
	testenv.ExpectPatched(t, hub, config, func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.CABundle = ca.certificatePEM()
	})
	r.expectTrust(t)
	if err := hub.Client.Get(t.Context(), client.ObjectKey{Namespace: r.Namespace, Name: secretName}, &corev1.Secret{}); !k8serrors.IsNotFound(err) {
		t.Errorf("expected no Secret, found %v", err)
	}
	other, err := newAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	testenv.ExpectPatched(t, hub, config, func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.CABundle = other.certificatePEM()
	})
	r.expectTrust(t, "MutatingWebhookConfiguration torpor to trust")
}

// TestOptionalConfigurationsAreTrustedWhereTheyAre uses a hub without apps. Its webhook records the requesters of
// cluster stops.
func TestOptionalConfigurationsAreTrustedWhereTheyAre(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "torpor-system"}})
	r := newRotator(hub, "torpor-system")
	const name = "torpor-hibernation-record"
	r.OptionalConfigurations = []string{name, "torpor-mysql-record"}
	r.expectTrust(t)
	hub.ApplyManifest(t, "record/webhook/hibernation.yaml")
	r.expectTrust(t)
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	testenv.ExpectPatched(t, hub, config, func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		if len(c.Webhooks[0].ClientConfig.CABundle) == 0 {
			t.Error("expected the authority in the configuration, found none")
		}
		c.Webhooks[0].ClientConfig.Service.Namespace = "elsewhere"
	})
	r.expectTrust(t, "MutatingWebhookConfiguration "+name+" to point to the Service torpor-system/torpor-webhook of this installation, found torpor-webhook.elsewhere.svc")

	t.Log("The role of an earlier version does not include the configuration.")
	names := []string{configurationName}
	hub.GrantRights(t, "earlier",
		rbacv1.PolicyRule{APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, ResourceNames: names, Verbs: []string{"get", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{korifiv1alpha1.CFAppKind().Group}, Resources: []string{"cfapps"}, Verbs: []string{"list"}},
	)
	earlier, err := client.New(hub.ImpersonateUser("earlier"), client.Options{Scheme: hub.Client.Scheme(), Mapper: hub.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	r.Reader = earlier
	testenv.ExpectNoError(t, r.rotate(t.Context()))
	r.expectTrust(t)
}
