// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/stoppable"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// maxConditions limits the conditions that are shown of a status that Torpor does not own.
const maxConditions = 50

// workloadKinds returns the workload kinds of Kubernetes.
func workloadKinds() []stoppableKind {
	var kinds []stoppableKind
	names := map[string][]string{
		"Deployment": {"deployment", "deployments", "deploy"}, "StatefulSet": {"statefulset", "statefulsets", "sts"}, "CronJob": {"cronjob", "cronjobs", "cj"},
	}
	for _, k := range stoppable.ListWorkloads() {
		kinds = append(kinds, switchedKind(k, names[k.GVK.Kind]))
	}
	return kinds
}

// switchedKind returns a kind whose controllers do not know Torpor. Users annotate an object, and the manager sets the
// kind's own switch and resets it (ADR 0030, ADR 0035).
func switchedKind(k stoppable.Kind, names []string) stoppableKind {
	return stoppableKind{
		gvk:         k.GVK,
		names:       names,
		isSwitched:  true,
		addToScheme: func(*runtime.Scheme) error { return nil },
		newObject: func() client.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(k.GVK)
			return u
		},
		newList: func() client.ObjectList {
			u := &unstructured.UnstructuredList{}
			u.SetGroupVersionKind(k.GVK.GroupVersion().WithKind(k.GVK.Kind + "List"))
			return u
		},
		describe: func(obj client.Object) []stopRow {
			u, _ := obj.(*unstructured.Unstructured)
			return []stopRow{describeSwitched(k, names[0], u)}
		},
		parts:         []string{k.Switch.Part},
		stop:          func(obj client.Object, _ string, _ time.Time) { fieldswitch.AskForStop(obj) },
		start:         func(obj client.Object, _ string, _ time.Time) { fieldswitch.AskForStart(obj) },
		annotationsOf: sharedAnnotations,
		plan:          planSwitched(k),
	}
}

func describeSwitched(k stoppable.Kind, kindName string, u *unstructured.Unstructured) stopRow {
	is, rest := fieldswitch.ReadSwitch(u), k.Switch.ReadActivity(u)
	r := newStopRow(k.GVK, u, k.Switch.Part, fieldswitch.IsAsked(u) && !is.Records.HasExpired(), is.Records).withScheduled(is.ListStopsSinceResume())
	r.kindName, r.pastScheduled, r.Message, r.conditions = kindName, nil, rest.Message, readConditions(u)
	if stoppable.FindGroup(k.GVK.Kind) != k.GVK.Group {
		r.APIGroup = k.GVK.Group
	}
	for _, one := range is.Scheduled {
		r.pastScheduled = append(r.pastScheduled, one.Stops...)
	}
	r.isUntouched = isUntouched(u, is)
	if at, by := is.LastResume(); !r.Stopped && !at.IsZero() {
		r.Since, r.By = &at, by
	}
	if r.State, r.restsByItself = stateOfSwitched(k, r, is, rest, u); r.State == "stopped" || r.State == "running" {
		r.Message = "" // The settled state answers the request. The open question of a StopAdapter does not matter.
	}
	return r.withNext(r.startCommand()).withUnseen(is)
}

// isUntouched reports whether neither a user nor a Slumber ever stopped the object.
func isUntouched(obj metav1.Object, is fieldswitch.SwitchState) bool {
	return len(is.Records)+len(is.Scheduled)+len(is.Saved) == 0 && !fieldswitch.IsAsked(obj)
}

// stateOfSwitched returns the state of an object. restsByItself is true if the object's own switch stops it, without a
// request to Torpor.
func stateOfSwitched(k stoppable.Kind, r stopRow, is fieldswitch.SwitchState, rest stoppable.ObservedActivity, u *unstructured.Unstructured) (state string, restsByItself bool) {
	isKept := len(is.Saved) > 0
	switch {
	case r.Stopped && isKept && rest.IsQuiet:
		return "stopped", false
	case r.Stopped:
		return "stopping", false
	case !isKept && rest.IsQuiet && is.IsStoppedWithoutSlumbers(u, k.Switch.Operations):
		return "stopped", true
	case !isKept && rest.IsReady:
		return "running", false
	default:
		return "starting", false
	}
}

// withUnseen sets NEXT to the reason why the manager refuses a stop, or to a hint that no manager has seen the stop:
// the feature may be missing.
func (r stopRow) withUnseen(is fieldswitch.SwitchState) stopRow {
	switch {
	case (r.Stopped || r.isAsked) && is.Refused != "":
		r.refusal = is.Refused
		r.Next = stuckPrefix + is.Refused
	case r.isAsked && !is.Records.Holds():
		r.Next = "waits for the manager, which needs the feature workloads"
	}
	return r
}

// readConditions reads the conditions of a status that Torpor does not own, if they have the usual form.
func readConditions(u *unstructured.Unstructured) (conditions []metav1.Condition) {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range all[:min(len(all), maxConditions)] {
		fields, isMap := one.(map[string]any)
		var c metav1.Condition
		if isMap && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil && c.Type != "" {
			conditions = append(conditions, c)
		}
	}
	return conditions
}
