// SPDX-License-Identifier: Apache-2.0

// Package testenv contains helpers for the tests of this module that need a real API server.
package testenv

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Patience limits every wait of the tests. On an idle machine no wait takes more than a hundredth of it.
const Patience = 3 * time.Minute

// NewEnvironment returns a kube-apiserver with its etcd, which are not started yet. Their start may be slow, because a
// machine that is busy with other tests needs longer than envtest's 20 s.
func NewEnvironment(ctx context.Context) (*envtest.Environment, error) {
	ports, err := findPorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	etcd := &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: net.JoinHostPort(loopback, ports[0])}}
	etcd.Configure().Set("listen-peer-urls", "http://"+net.JoinHostPort(loopback, ports[1]))
	apiServer := &envtest.APIServer{}
	apiServer.Address, apiServer.Port = loopback, ports[2]
	return &envtest.Environment{
		ControlPlane:             envtest.ControlPlane{Etcd: etcd, APIServer: apiServer},
		ControlPlaneStartTimeout: Patience, ControlPlaneStopTimeout: Patience,
	}, nil
}

// NewCRD returns a CRD whose schema preserves all fields.
func NewCRD(kind schema.GroupVersionKind, plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}

// IsEstablished reports whether the API server has accepted a CRD.
func IsEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// Eventually waits until holds returns true. Otherwise it fails the test with the description what.
func Eventually(t *testing.T, what string, holds func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, Patience, true, holds); err != nil {
		t.Fatalf("waited in vain until %s: %v", what, err)
	}
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// GrantRight grants a user the rights in the rules in all namespaces. It returns when the rights are in effect. This
// takes time, because the API server's authorizer receives roles from a watch.
func GrantRight(t *testing.T, c client.Client, name, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	named := metav1.ObjectMeta{Name: name}
	Must(t, c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: named, Rules: rules}))
	Must(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
	for _, rule := range rules {
		Eventually(t, user+" may "+rule.Verbs[0]+" "+rule.Resources[0], func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: firstRight(rule)}}
			err := c.Create(ctx, review)
			return review.Status.Allowed, err
		})
	}
}

// firstRight returns the first right that a rule about resources grants.
func firstRight(rule rbacv1.PolicyRule) *authorizationv1.ResourceAttributes {
	right := &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0]}
	right.Resource, right.Subresource, _ = strings.Cut(rule.Resources[0], "/")
	if len(rule.ResourceNames) > 0 {
		right.Name = rule.ResourceNames[0]
	}
	return right
}

// Custom is an object of a kind that tests define.
type Custom struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              CustomSpec `json:"spec"`
}

// CustomSpec is the spec of Custom.
type CustomSpec struct {
	Message string `json:"message,omitempty"`
}

// CustomList is a list of Custom objects.
type CustomList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Custom `json:"items"`
}

// Hub marks the version to which other versions are converted.
func (*Custom) Hub() {}

// DeepCopyObject copies the object.
func (c *Custom) DeepCopyObject() runtime.Object {
	out := &Custom{TypeMeta: c.TypeMeta, Spec: c.Spec}
	c.DeepCopyInto(&out.ObjectMeta)
	return out
}

// DeepCopyObject copies the list.
func (l *CustomList) DeepCopyObject() runtime.Object {
	out := &CustomList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		if c, ok := l.Items[i].DeepCopyObject().(*Custom); ok {
			out.Items = append(out.Items, *c)
		}
	}
	return out
}

// AddCustom registers Custom as the type of a kind.
func AddCustom(scheme *runtime.Scheme, kind schema.GroupVersionKind) {
	scheme.AddKnownTypeWithName(kind, &Custom{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &CustomList{})
	metav1.AddToGroupVersion(scheme, kind.GroupVersion())
}
