// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
)

func adapterOf(uid types.UID) *torporv1alpha1.StopAdapter {
	a := &torporv1alpha1.StopAdapter{}
	a.Name, a.UID, a.Generation = "x", uid, 1
	return a
}

// TestRecreatedAdapterKeepsItsController has an adapter that is deleted and created again before the controller of
// the deleted adapter has ended.
func TestRecreatedAdapterKeepsItsController(t *testing.T) {
	g := &adapterGroups{abandoned: make(chan struct{}, 1)}
	g.add(adapterOf("first"), nil)
	g.abandon("x")
	g.add(adapterOf("second"), nil)
	if gone := g.takeGone(); len(gone) > 0 || !g.isCurrent(adapterOf("second")) {
		t.Errorf("expected the controller of the second to stay, found that %d are to end", len(gone))
	}
	g.abandon("x")
	if gone := g.takeGone(); len(gone) != 1 || g.isCurrent(adapterOf("second")) {
		t.Errorf("expected the controller of the second to end, found that %d are to", len(gone))
	}
}

// TestControllerThatOutlastsTheFeatureIsNotKept has a controller that a pass adds after the feature has ended. Nothing
// would end such a controller.
func TestControllerThatOutlastsTheFeatureIsNotKept(t *testing.T) {
	g := &adapterGroups{abandoned: make(chan struct{}, 1)}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.run(over); err != nil {
		t.Fatal(err)
	}
	if g.add(adapterOf("late"), nil) || g.isCurrent(adapterOf("late")) {
		t.Error("expected a controller that is added after the end not to be kept, found it")
	}
}

// TestStartingControllerReportsNoMissingKind has a controller whose kind a new leader has not checked yet, and one
// whose informers are still listing objects.
func TestStartingControllerReportsNoMissingKind(t *testing.T) {
	a := adapterOf("first")
	a.Spec.Target = torporv1alpha1.StopAdapterTarget{Group: "example.com", Version: "v1", Kind: "Thing"}
	for name, row := range map[string]struct {
		is   conditional.GroupStatus
		want string
	}{
		"a kind that is not checked yet: AdapterStarts":   {conditional.GroupStatus{}, "Unknown AdapterStarts"},
		"informers that are still listing: AdapterStarts": {conditional.GroupStatus{Phase: conditional.Starting, Condition: conditional.Status{State: conditional.True}}, "Unknown AdapterStarts"},
		"a kind that is not served: KindNotServed":        {conditional.GroupStatus{Phase: conditional.Dormant, Condition: conditional.Status{State: conditional.False}}, "False KindNotServed"},
	} {
		if found := describeGroup(a, row.is); string(found.Status)+" "+found.Reason != row.want {
			t.Errorf("%s: expected %q, found %+v", name, row.want, found)
		}
	}
}
