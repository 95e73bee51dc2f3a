// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// TestRealAPIServer reads from a real API server and approves requests there.
func TestRealAPIServer(t *testing.T) {
	hub := testenv.StartAPIServer(t)
	data, err := os.ReadFile(hub.KubeconfigPath(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := (Dialer{}).Dial(data, hibernation.ServerOverride{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.FirstDate().IsZero() {
		t.Error("expected the date of the first answer, found none")
	}
	t.Run("nodes", func(t *testing.T) { testNodes(t, hub, c) })
	for name, row := range map[string]struct {
		meanwhile func(*testing.T, *certificatesv1.CertificateSigningRequest)
		refused   func(error) bool
	}{
		"unchanged request is approved": {func(*testing.T, *certificatesv1.CertificateSigningRequest) {}, nil},
		"request that changed after its verdict is not approved": {func(t *testing.T, r *certificatesv1.CertificateSigningRequest) {
			t.Helper()
			r.Labels = map[string]string{"changed": "yes"}
			must(t, hub.Client.Update(t.Context(), r))
		}, k8serrors.IsConflict},
		"request that was replaced by another with the same name is not approved": {func(t *testing.T, r *certificatesv1.CertificateSigningRequest) {
			t.Helper()
			must(t, hub.Client.Delete(t.Context(), r))
			must(t, hub.Client.Create(t.Context(), newRequest(t, r.Name)))
		}, k8serrors.IsConflict},
		"deleted request is not approved": {func(t *testing.T, r *certificatesv1.CertificateSigningRequest) {
			t.Helper()
			must(t, hub.Client.Delete(t.Context(), r))
		}, k8serrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest(t, "csr-"+randomName(t))
			must(t, hub.Client.Create(t.Context(), r))
			judged := findRequest(t, c, r.Name)
			row.meanwhile(t, r)
			err := c.ApproveRequest(t.Context(), judged)
			switch {
			case row.refused == nil && err != nil:
				t.Errorf("found %v, want an approval", err)
			case row.refused != nil && !row.refused(err):
				t.Errorf("found %v, want a refusal", err)
			}
			if now := findRequest(t, c, r.Name); now != nil && isApproved(now) != (row.refused == nil) {
				t.Errorf("conditions %+v", now.Status.Conditions)
			}
		})
	}
	t.Run("machines", func(t *testing.T) { testMachines(t, hub, c) })
	t.Run("survey", func(t *testing.T) { testSurvey(t, hub, c) })
}

func testNodes(t *testing.T, hub *testenv.Environment, c *ClusterClient) {
	t.Helper()
	early, late := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 7, 1, 13, 0, 0, 0, time.UTC)
	node := func(name string, ready corev1.ConditionStatus, beat time.Time, labels map[string]string) {
		must(t, hub.Client.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(late.Add(time.Hour))},
					{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.NewTime(beat)},
				},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: name}},
			},
		}))
	}
	lease := func(name string, at time.Time) {
		must(t, hub.Client.Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(at))},
		}))
	}
	node("a-lease-is-newer", corev1.ConditionTrue, early, map[string]string{controlPlaneRole: ""})
	lease("a-lease-is-newer", late)
	node("b-heartbeat-is-newer", corev1.ConditionFalse, late, map[string]string{masterRole: ""})
	lease("b-heartbeat-is-newer", early)
	node("c-no-lease", corev1.ConditionUnknown, early, nil)
	want := func(name string, ready, controlPlane bool, seen time.Time) hibernation.ObservedNode {
		return hibernation.ObservedNode{LastSeen: seen, RecordedNode: hivev1.RecordedNode{
			Name: name, Ready: ready, ControlPlane: controlPlane,
			Addresses: []hivev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "Hostname", Address: name}},
		}}
	}
	got, err := c.ListNodes(t.Context())
	must(t, err)
	ignore := cmpopts.IgnoreFields(hivev1.RecordedNode{}, "UID")
	if diff := cmp.Diff([]hibernation.ObservedNode{
		want("a-lease-is-newer", true, true, late), want("b-heartbeat-is-newer", false, true, late), want("c-no-lease", false, false, early),
	}, got, ignore, cmpopts.IgnoreFields(hibernation.NodeCordon{}, "ResourceVersion"), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(got, func(n hibernation.ObservedNode) bool { return n.UID == "" || n.Cordon.ResourceVersion == "" }) {
		t.Errorf("a node has no UID: %+v", got)
	}
}

func testMachines(t *testing.T, hub *testenv.Environment, c *ClusterClient) {
	t.Helper()
	if list, err := c.ListMachines(t.Context()); err != nil || list.IsOpenShift || len(list.Known) > 0 {
		t.Errorf("without the kind: %+v, %v", list, err)
	}
	def := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "machines.machine.openshift.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "machine.openshift.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "machines", Kind: "Machine"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
	must(t, hub.Client.Create(t.Context(), def))
	for _, namespace := range []string{"openshift-machine-api", "elsewhere"} {
		must(t, hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		m := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"nodeRef": map[string]any{"name": namespace}}}}
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"})
		m.SetNamespace(namespace)
		m.SetName("worker-0")
		testenv.Eventually(t, "Machines are served", func() error { return client.IgnoreAlreadyExists(hub.Client.Create(t.Context(), m)) })
	}
	list, err := c.ListMachines(t.Context())
	if err != nil || !list.IsOpenShift || len(list.Known) != 1 || list.Known[0].NodeName != "openshift-machine-api" {
		t.Errorf("found %+v (%v), want the one Machine of openshift-machine-api", list, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func randomName(t *testing.T) string {
	t.Helper()
	var b [4]byte
	_, err := rand.Read(b[:])
	must(t, err)
	return "x" + string('a'+b[0]%26) + string('a'+b[1]%26) + string('a'+b[2]%26) + string('a'+b[3]%26)
}

// newRequest returns a real kubelet's request for a client certificate.
func newRequest(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
	}, key)
	must(t, err)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

func findRequest(t *testing.T, c *ClusterClient, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	list, err := c.ListRequests(context.WithoutCancel(t.Context()))
	must(t, err)
	i := slices.IndexFunc(list, func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func isApproved(r *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved && c.Status == corev1.ConditionTrue && c.Reason == approvalReason
	})
}
