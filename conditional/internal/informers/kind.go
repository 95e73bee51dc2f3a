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

// ObjectForm is how much of an object an informer decodes.
type ObjectForm int8

// The three forms of an object; an informer has one of them.
const (
	Typed ObjectForm = iota
	Unstructured
	Metadata
)

// FormOf returns the form of an object or of a list.
func FormOf(obj runtime.Object) ObjectForm {
	switch obj.(type) {
	case runtime.Unstructured:
		return Unstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return Metadata
	}
	return Typed
}

// IdentifyObject returns the kind and the form of an object or of a list.
func IdentifyObject(obj runtime.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, ObjectForm, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if meta.IsListType(obj) {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return gvk, FormOf(obj), err
}

// InformerKind is all that distinguishes one informer from another.
type InformerKind struct {
	GVK        schema.GroupVersionKind
	Form       ObjectForm
	Plural     string
	Namespaced bool
	// UID is that of the kind's CRD, empty when there is none or when it is not known.
	UID string
}

// IsLost reports whether what an informer of this kind watches is gone: the kind is absent, or has the CRD of another UID.
func (k InformerKind) IsLost(isAbsent bool, uid string) bool {
	return isAbsent || k.UID != "" && uid != "" && k.UID != uid
}

// RESTMapping returns where the API server has the kind.
func (k InformerKind) RESTMapping() *meta.RESTMapping {
	return &meta.RESTMapping{
		Resource:         k.GVK.GroupVersion().WithResource(k.Plural),
		GroupVersionKind: k.GVK,
		Scope:            k.restScope(),
	}
}

func (k InformerKind) restScope() meta.RESTScope {
	if k.Namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// newRESTMapper knows this kind only, and its lists, which caches of many namespaces ask for.
func (k InformerKind) newRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{k.GVK.GroupVersion()})
	resource := k.GVK.GroupVersion().WithResource(k.Plural)
	mapper.AddSpecific(k.GVK, resource, resource, k.restScope())
	mapper.Add(k.GVK.GroupVersion().WithKind(k.GVK.Kind+"List"), k.restScope())
	return mapper
}

// NewObject returns an empty object of the kind in its form.
func (k InformerKind) NewObject(scheme *runtime.Scheme) (client.Object, error) {
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
