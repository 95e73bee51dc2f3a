// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func routeKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Route"}
}

// Route is a kind that comes and goes.
type Route struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Note              string `json:"note,omitempty"`
}

// RouteList is many of them.
type RouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Route `json:"items"`
}

func (r *Route) DeepCopyObject() runtime.Object {
	out := &Route{TypeMeta: r.TypeMeta, Note: r.Note}
	r.DeepCopyInto(&out.ObjectMeta)
	return out
}

func (l *RouteList) DeepCopyObject() runtime.Object {
	out := &RouteList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		if r, ok := l.Items[i].DeepCopyObject().(*Route); ok {
			out.Items = append(out.Items, *r)
		}
	}
	return out
}

func addRoutes(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(routeKind().GroupVersion(), &Route{}, &RouteList{})
	metav1.AddToGroupVersion(scheme, routeKind().GroupVersion())
}

// routes is the CRD of Route.
func routes(plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(routeKind(), plural, scope)
}

// install creates a CRD and waits until its objects can be made.
func (r *scopeEnv) install(def *apiextensionsv1.CustomResourceDefinition) {
	r.t.Helper()
	if err := r.client.Create(r.t.Context(), def.DeepCopy()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := client.IgnoreNotFound(r.client.Delete(context.Background(), def.DeepCopy())); err != nil {
			r.t.Error(err)
		}
	})
	r.eventually("the kind is served", func(ctx context.Context) (bool, error) {
		return r.freshClient().List(ctx, &RouteList{}) == nil, nil
	})
}

// uninstall deletes a CRD and waits until it is gone.
func (r *scopeEnv) uninstall(def *apiextensionsv1.CustomResourceDefinition) {
	r.t.Helper()
	if err := r.client.Delete(r.t.Context(), def.DeepCopy()); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("the CRD is gone", func(ctx context.Context) (bool, error) {
		err := r.client.Get(ctx, client.ObjectKeyFromObject(def), &apiextensionsv1.CustomResourceDefinition{})
		return k8serrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
