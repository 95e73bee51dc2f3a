// SPDX-License-Identifier: Apache-2.0

package process

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/test/env/model"
)

// revisions is the number of revisions in the model. States contain arrays of this size, so they are comparable.
const revisions = 4

// modelLRP is an LRP with its StatefulSet. The StatefulSet may create Pods until its controller has observed the
// deletion of the LRP.
type modelLRP struct {
	there, deleting, told bool
	instances             int8
}

type modelPods struct{ starting, ready, draining int8 }

// modelState is an app with one process, its LRPs and Pods by revision, and the controller's pending action.
type modelState struct {
	started, overlap, cancelled bool
	// ongoing is true while the deployment can be cancelled.
	ongoing            bool
	rev, last, desired int8
	deployed           bool
	// lastOf holds, for each revision, the last stop at the time when the revision began. Revisions below this stop
	// must not run next to the revision.
	lastOf [revisions]int8
	lrps   [revisions]modelLRP
	pods   [revisions]modelPods
	// broken marks the revisions whose instances never become ready.
	broken [revisions]bool
	// budget is the remaining number of user requests and accidents.
	budget int8
	// decided is the pending action, which was decided when the app had the revision decidedRev and the state
	// decidedStarted.
	decided        pendingAction
	decidedRev     int8
	decidedStarted bool
}

// pendingAction is a comparable representation of an action.
type pendingAction struct {
	kind      string
	revisions [revisions]bool
	instances int8
}

func (w modelState) observe() Observed {
	o := Observed{
		Now: testNow(), ProcessGUID: guid, Desired: int32(w.desired),
		App: DesiredApp{
			Started: w.started, Revision: int64(w.rev), LastStop: int64(w.last), Overlap: w.overlap, Rollout: RolloutOptions{Cancelled: w.cancelled, Cancellable: w.ongoing},
		},
	}
	for r := range int64(revisions) {
		if l := w.lrps[r]; l.there {
			o.LRPs = append(o.LRPs, ObservedLRP{Name: revision.LRPName(guid, r), Revision: r, Instances: int32(l.instances), Deleting: l.deleting})
		}
		if p := w.pods[r]; p != (modelPods{}) {
			o.Pods = append(o.Pods, podstatus.RevisionPods{Revision: r, Alive: int32(p.starting + p.ready), Ready: int32(p.ready), Draining: int32(p.draining)})
		}
	}
	return o
}

// controllerStep is one half of a pass. Other steps may happen between the halves, because the controller acts on an
// earlier observation.
func (w modelState) controllerStep() model.Move[modelState] {
	if w.decided.kind != "" {
		return model.Move[modelState]{Name: "act", To: w.act()}
	}
	decided, p := w.decide()
	return model.Move[modelState]{Name: p.Rule, To: decided}
}

// decide is the first half of a pass. It stores the action for the second half.
func (w modelState) decide() (modelState, Plan) {
	p := Decide(w.observe())
	w.decidedRev, w.decidedStarted, w.decided = w.rev, w.started, pendingAction{}
	switch do := p.Do.(type) {
	case Nothing:
	case CreateLRP:
		w.decided = pendingAction{kind: "create", revisions: revisionsNamed(do.Name), instances: int8(do.Instances)}
	case ScaleLRP:
		w.decided = pendingAction{kind: "scale", revisions: revisionsNamed(do.Name), instances: int8(do.Instances)}
	case DeleteLRPs:
		w.decided = pendingAction{kind: "delete", revisions: revisionsNamed(do.Names...)}
	}
	return w, p
}

func revisionsNamed(names ...string) [revisions]bool {
	var set [revisions]bool
	for r := range int64(revisions) {
		for _, name := range names {
			set[r] = set[r] || revision.LRPName(guid, r) == name
		}
	}
	return set
}

// act is the second half of a pass. It performs the pending action. A deletion is performed only if the app has not
// changed since the decision.
func (w modelState) act() modelState {
	do, fresh := w.decided, w.decidedRev == w.rev && w.decidedStarted == w.started
	w.decided, w.decidedRev, w.decidedStarted = pendingAction{}, 0, false
	for r := range w.lrps {
		l := &w.lrps[r]
		switch {
		case !do.revisions[r]:
		case do.kind == "create" && !l.there:
			*l = modelLRP{there: true, instances: do.instances}
		case do.kind == "scale" && l.there && !l.deleting:
			l.instances = do.instances
		case do.kind == "delete" && l.there && fresh:
			l.deleting = true
		}
	}
	return w
}

// naturalSteps returns the states after each possible step of Kubernetes.
func (w modelState) naturalSteps() []modelState {
	var next []modelState
	for r := range w.lrps {
		l, p := w.lrps[r], w.pods[r]
		add := func(l modelLRP, p modelPods) {
			n := w
			n.lrps[r], n.pods[r] = l, p
			next = append(next, n)
		}
		alive, allowed := p.starting+p.ready, int8(0)
		if l.there && !l.told {
			allowed = l.instances
		}
		if l.deleting && !l.told {
			l.told = true
			add(l, p)
			l.told = false
		}
		if alive < allowed {
			add(l, modelPods{p.starting + 1, p.ready, p.draining})
		}
		if alive > allowed && p.starting > 0 {
			add(l, modelPods{p.starting - 1, p.ready, p.draining + 1})
		} else if alive > allowed {
			add(l, modelPods{p.starting, p.ready - 1, p.draining + 1})
		}
		if p.starting > 0 && !w.broken[r] {
			add(l, modelPods{p.starting - 1, p.ready + 1, p.draining})
		}
		if p.draining > 0 {
			add(l, modelPods{p.starting, p.ready, p.draining - 1})
		}
		if l.told && p == (modelPods{}) {
			add(modelLRP{}, p)
		}
	}
	if n, ends := w.finishDeployment(); ends {
		next = append(next, n)
	}
	return next
}

// finishDeployment returns the state after the end of the deployment. It returns false if the deployment cannot end,
// because the app is not running.
func (w modelState) finishDeployment() (modelState, bool) {
	if !w.ongoing || !w.cancelled && w.pods[w.rev].ready < w.desired {
		return w, false
	}
	ready := Decide(w.observe()).Ready
	w.ongoing = ready.Status != metav1.ConditionTrue || ready.Reason != korifiv1alpha1.RunningReason
	return w, !w.ongoing
}

// disturbances returns the states after each possible user request and accident.
func (w modelState) disturbances() []modelState {
	if w.budget == 0 {
		return nil
	}
	w.budget--
	var next []modelState
	ask := func(change func(*korifiv1alpha1.CFApp)) {
		if n, ok := w.admitChange(change); ok {
			next = append(next, n)
		}
	}
	ask(func(a *korifiv1alpha1.CFApp) { a.Spec.DesiredState = korifiv1alpha1.StoppedState })
	ask(func(a *korifiv1alpha1.CFApp) { a.Spec.DesiredState = korifiv1alpha1.StartedState })
	ask(func(a *korifiv1alpha1.CFApp) { a.Annotations[torporv1alpha1.RestartRequestAnnotation] = "again" })
	ask(func(a *korifiv1alpha1.CFApp) { a.Annotations[torporv1alpha1.DeploymentAnnotation] = "again" })
	for desired := range int8(3) {
		n := w
		n.desired = desired
		next = append(next, n)
	}
	if w.deployed && w.ongoing {
		n := w
		n.cancelled = true
		next = append(next, n)
	}
	for r := range w.lrps {
		n := w
		if p := &n.pods[r]; p.ready > 0 {
			p.ready, p.starting = p.ready-1, p.starting+1
			next = append(next, n)
		}
		n = w
		if n.lrps[r].there && !n.lrps[r].deleting {
			n.lrps[r].deleting = true
			next = append(next, n)
			n.lrps[r] = modelLRP{} // Another client has removed the finalizer.
			next = append(next, n)
		}
	}
	return next
}

// admitChange applies a change in the same way as admission. It returns false if the model has no revision left.
func (w modelState) admitChange(change func(*korifiv1alpha1.CFApp)) (modelState, bool) {
	old := &korifiv1alpha1.CFApp{Spec: korifiv1alpha1.CFAppSpec{
		DesiredState: korifiv1alpha1.StoppedState, CurrentDropletRef: &korifiv1alpha1.Reference{Name: "new"},
	}}
	old.Annotations = map[string]string{
		korifiv1alpha1.RevisionAnnotation: revision.FormatRevision(int64(w.rev)), korifiv1alpha1.LastStopRevisionAnnotation: revision.FormatRevision(int64(w.last)),
	}
	if w.started {
		old.Spec.DesiredState, old.Annotations[torporv1alpha1.DropletAnnotation] = korifiv1alpha1.StartedState, "new"
	}
	updated := old.DeepCopy()
	change(updated)
	m, err := revision.NextRevision(old, updated)
	if err != nil || m.Revision >= revisions || m.Revision < int64(w.rev) {
		return w, false
	}
	w.started = updated.Spec.DesiredState == korifiv1alpha1.StartedState
	if m.Cause != "" {
		w.rev, w.last, w.cancelled = int8(m.Revision), int8(m.LastStop), false
		w.lastOf[w.rev], w.deployed = w.last, m.Cause == korifiv1alpha1.CausedByDeployment
		w.ongoing = w.deployed
	}
	return w, true
}
