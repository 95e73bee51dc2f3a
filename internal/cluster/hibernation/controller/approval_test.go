// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// missingNodeName is the name of a node that never reports.
const missingNodeName = "silent"

// TestApprovesOnlyRecordedNodesAndOnlyAfterHibernation requests certificates from a real API server, as kubelets do
// after a hibernation.
func TestApprovesOnlyRecordedNodesAndOnlyAfterHibernation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	kubelet := e.bootstrapClient(t)
	if err := e.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: missingNodeName}}); err != nil {
		t.Fatal(err)
	}
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	createRequest(t, kubelet, "while-it-runs", missingNodeName)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	if e.isApproved(t, "while-it-runs") {
		t.Error("a request of a cluster that does not resume was approved")
	}
	// The request is more recent than the permitted clock skew, so it would count after such a short hibernation.
	if err := e.Client.Delete(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "while-it-runs"}}); err != nil {
		t.Fatal(err)
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	createRequest(t, kubelet, "of-a-stranger", "never-seen-before")
	createRequest(t, kubelet, "of-a-node-that-is-back", readyNodeName)
	createRequest(t, kubelet, "of-the-node", missingNodeName)
	testenv.Eventually(t, "the node's request is approved", func() error {
		if !e.isApproved(t, "of-the-node") {
			return errors.New("undecided")
		}
		return nil
	})
	e.awaitMetric(t, "torpor_certificate_requests_approved_total", map[string]string{"client": "1"})
	createRequest(t, kubelet, "of-the-node-again", missingNodeName)
	s.awaitEvents(t, "Stopping", "Hibernating", "Resuming", "Running", hibernation.CertificatesApproved, hibernation.CertificateRequestsLeft)
	for _, name := range []string{"of-a-node-that-is-back", "of-the-node-again"} {
		if e.isApproved(t, name) {
			t.Errorf("the request %s was approved", name)
		}
	}
	if e.isApproved(t, "of-a-stranger") {
		t.Error("a request for a node that did not hibernate was approved")
	}
}

// bootstrapClient returns a client with the user name and the groups of a bootstrap token.
func (e *env) bootstrapClient(t *testing.T) client.Client {
	t.Helper()
	const group = "system:bootstrappers"
	if err := e.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrappers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(e.ImpersonateUser("system:bootstrap:abcdef", group, "system:authenticated"), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func createRequest(t *testing.T, kubelet client.Client, name, node string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	testenv.Eventually(t, fmt.Sprintf("the request %s is taken", name), func() error {
		return client.IgnoreAlreadyExists(kubelet.Create(t.Context(), request))
	})
}

func (e *env) isApproved(t *testing.T, name string) bool {
	t.Helper()
	var r certificatesv1.CertificateSigningRequest
	if err := e.Client.Get(t.Context(), client.ObjectKey{Name: name}, &r); err != nil {
		t.Fatal(err)
	}
	return len(r.Status.Conditions) > 0
}
