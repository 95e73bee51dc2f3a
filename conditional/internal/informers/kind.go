// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Form is how much of an object an informer decodes.
type Form int8

// The three forms of an object; an informer has one of them.
const (
	Typed Form = iota
	Unstructured
	Metadata
)

// FormOf returns the form of an object or of a list.
func FormOf(obj runtime.Object) Form {
	switch obj.(type) {
	case runtime.Unstructured:
		return Unstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return Metadata
	}
	return Typed
}

// Identify returns the kind and the form of an object or of a list.
func Identify(obj runtime.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, Form, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if meta.IsListType(obj) {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return gvk, FormOf(obj), err
}

// Kind is all that tells one informer from another.
type Kind struct {
	GVK        schema.GroupVersionKind
	Form       Form
	Plural     string
	Namespaced bool
	// UID is that of the kind's CRD, empty when there is none or when it is not known.
	UID string
}

// Mapping returns where the API server has the kind.
func (k Kind) Mapping() *meta.RESTMapping {
	return &meta.RESTMapping{
		Resource:         k.GVK.GroupVersion().WithResource(k.Plural),
		GroupVersionKind: k.GVK,
		Scope:            k.scope(),
	}
}

func (k Kind) scope() meta.RESTScope {
	if k.Namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// mapper knows this kind only, and its lists, which caches of many namespaces ask for.
func (k Kind) mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{k.GVK.GroupVersion()})
	resource := k.GVK.GroupVersion().WithResource(k.Plural)
	mapper.AddSpecific(k.GVK, resource, resource, k.scope())
	mapper.Add(k.GVK.GroupVersion().WithKind(k.GVK.Kind+"List"), k.scope())
	return mapper
}

// Object returns an empty object of the kind in its form.
func (k Kind) Object(scheme *runtime.Scheme) (client.Object, error) {
	switch k.Form {
	case Unstructured:
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(k.GVK)
		return obj, nil
	case Metadata:
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(k.GVK)
		return obj, nil
	case Typed:
	}
	made, err := scheme.New(k.GVK)
	if err != nil {
		return nil, fmt.Errorf("find the Go type of %s in the manager's scheme (add it with AddToScheme): %w", k.GVK, err)
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("expected an object with metadata for %s in the manager's scheme, found %T: it cannot be watched", k.GVK, made)
	}
	return obj, nil
}
