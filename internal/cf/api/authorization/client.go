// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"crypto/tls"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// bearerTransport adds a token to every request of one caller.
type bearerTransport struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// A RoundTripper must not change its request.
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// newTransport returns a transport to the API server with one caller's credential. done closes the connections of this
// transport only.
func (a *Authenticator) newTransport(cred callerCredential, certificates []tls.Certificate) (tripper http.RoundTripper, done func()) {
	if len(certificates) == 0 {
		return bearerTransport{token: cred.value, next: a.shared}, func() {}
	}
	// client-go would cache its transport forever under the certificate's key, so this package creates its own
	// transport.
	own := a.shared.Clone()
	own.TLSClientConfig.Certificates = certificates
	return own, own.CloseIdleConnections
}

// newClients returns the clients of one request.
func (a *Authenticator) newClients(tripper http.RoundTripper) (client.Client, corev1client.CoreV1Interface, error) {
	h := &http.Client{Transport: tripper, Timeout: callTimeout}
	cfg := &rest.Config{Host: a.host, APIPath: a.path, QPS: -1, UserAgent: a.userAgent}
	// A static RESTMapper avoids discovery requests.
	kubernetes, err := client.New(cfg, client.Options{HTTPClient: h, Scheme: a.scheme, Mapper: a.mapper()})
	if err != nil {
		return nil, nil, fmt.Errorf("create client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(cfg, h)
	if err != nil {
		return nil, nil, fmt.Errorf("create client: %w", err)
	}
	return kubernetes, core, nil
}

// PodMetricsKind returns the kind of the list of Pod metrics, which not every cluster serves.
func PodMetricsKind() schema.GroupVersionKind { return podMetricsVersion().WithKind("PodMetricsList") }

func podMetricsVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
}

// NewRESTMapper returns a RESTMapper of the kinds that callers read and write: the kinds of apps, and the given ones.
func NewRESTMapper(kinds []schema.GroupVersionKind) *meta.DefaultRESTMapper {
	m, podMetrics := meta.NewDefaultRESTMapper(nil), podMetricsVersion()
	for _, k := range kinds {
		m.Add(k, meta.RESTScopeNamespace)
	}
	for _, k := range []schema.GroupVersionKind{
		korifiv1alpha1.CFAppKind(), korifiv1alpha1.CFProcessKind(), korifiv1alpha1.CFBuildKind(), korifiv1alpha1.CFPackageKind(),
		korifiv1alpha1.CFOrgKind(), korifiv1alpha1.CFSpaceKind(), korifiv1alpha1.CFDomainKind(), korifiv1alpha1.CFRouteKind(), korifiv1alpha1.CFTaskKind(), korifiv1alpha1.CFServiceInstanceKind(), korifiv1alpha1.CFServiceBindingKind(), corev1.SchemeGroupVersion.WithKind("Pod"),
		corev1.SchemeGroupVersion.WithKind("Secret"), coordinationv1.SchemeGroupVersion.WithKind("Lease"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), corev1.SchemeGroupVersion.WithKind("Event"), torporv1alpha1.CFDeploymentKind(),
	} {
		m.Add(k, meta.RESTScopeNamespace)
	}
	m.AddSpecific(podMetrics.WithKind("PodMetrics"), podMetrics.WithResource("pods"), podMetrics.WithResource("pod"), meta.RESTScopeNamespace)
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return m
}
