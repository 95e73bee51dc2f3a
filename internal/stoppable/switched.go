// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// ObservedActivity is the activity of an object that has no status of Torpor's.
type ObservedActivity struct {
	// IsStoppable is true if the object can be stopped.
	IsStoppable bool
	// IsQuiet is true if nothing of the object runs, IsReady if all of it does, regardless of the cause.
	IsQuiet, IsReady bool
	// Message describes what the object lacks to be quiet or ready.
	Message string
}

// NewSwitched returns a kind with a switch.
func NewSwitched(gvk schema.GroupVersionKind, how FieldSwitch, read func(*unstructured.Unstructured) ObservedActivity) Kind {
	how.ReadActivity = read
	return Kind{
		GVK: gvk, Switch: &how,
		New: func() Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return u
		},
		NewList: func() List {
			u := &unstructured.UnstructuredList{}
			u.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			return u
		},
		ReadState: func(obj Object, now time.Time) State {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				return readSwitched(u, how, read(u), now)
			}
			return State{}
		},
	}
}

// NewMetadataList returns an empty list of metadata, which is cached even for kinds without a Go type.
func (k Kind) NewMetadataList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.GVK.GroupVersion().WithKind(k.GVK.Kind + "List"))
	return list
}

func readSwitched(u *unstructured.Unstructured, how FieldSwitch, rest ObservedActivity, now time.Time) State {
	is := fieldswitch.ReadSwitch(u)
	isKept, isOthers := is.IsKept(u), is.IsStoppedWithoutSlumbers(u, how.Operations)
	scheduled := is.FindScheduled(u.GetAnnotations(), now)
	s := State{
		// An owned object follows its owner, and cannot be stopped. A sleeping object may look as if it could not be
		// stopped; it must not be woken for that.
		IsStoppable:              u.GetDeletionTimestamp().IsZero() && (rest.IsStoppable || scheduled != nil) && fieldswitch.RefuseOwned(u) == "",
		IsAsleep:                 (isKept || isOthers) && rest.IsQuiet,
		IsAwake:                  len(is.Saved) == 0 && rest.IsReady && scheduled == nil,
		IsStoppedWithoutSlumbers: isOthers,
		ScheduledStops:           is.Scheduled,
		Message:                  rest.Message,
	}
	s.ResumedAt, s.ResumedBy = is.LastResume()
	if is.Refused != "" {
		s.Message = is.Refused
	}
	return s
}

func set(op torporv1alpha1.StopOperationType, path, value string) torporv1alpha1.StopOperation {
	return torporv1alpha1.StopOperation{Op: op, Path: path, Value: &torporv1alpha1.JSONValue{Raw: []byte(value)}}
}
