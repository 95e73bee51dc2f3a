// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/test/env/model"
)

// TestEveryStateIsSafeAndConverges starts with a running app. It explores every interleaving of user requests,
// accidents, steps of Kubernetes, and steps of a slow controller. No state violates an invariant, and the controller
// reaches the desired state from each state.
func TestEveryStateIsSafeAndConverges(t *testing.T) {
	outside := map[string]bool{"process is deleted": true, "revision unreadable": true, "LRP newer than the app": true, "no droplet": true, "canary paused": true, "Korifi's Pods still exist": true}
	strict := map[string]bool{"new revision held until drained": true, "replaced instances are ending": true}
	for name, row := range map[string]struct {
		overlap bool
		budget  int8
		broken  [revisions]bool
	}{
		"strict drain policy": {budget: 3}, "drain policy overlap": {overlap: true, budget: 2},
		"strict drain policy, and deployed instances never become ready": {budget: 3, broken: [revisions]bool{false, true, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			explorer := model.Explore(t, model.Model[modelState]{
				Step: modelState.controllerStep,
				Disturb: func(w modelState) []model.Move[modelState] {
					var moves []model.Move[modelState]
					for _, to := range append(w.naturalSteps(), w.disturbances()...) {
						moves = append(moves, model.Move[modelState]{Name: "something happens", To: to})
					}
					return moves
				},
				Check: func(w modelState, step model.Move[modelState]) []string {
					wrong := append(findOverlaps(w), findRestless(w)...)
					if w.decided.kind == "" {
						wrong = append(wrong, findUnsafe(w, Decide(w.observe()), step.To)...)
					}
					return wrong
				},
			}, modelState{
				started: true, overlap: row.overlap, desired: 2, budget: row.budget, broken: row.broken,
				lrps: [revisions]modelLRP{{there: true, instances: 2}}, pods: [revisions]modelPods{{ready: 2}},
			})
			used := explorer.Steps()
			for _, r := range Rules() {
				if used[r.Name] == 0 && !outside[r.Name] && (!row.overlap || !strict[r.Name]) && (!row.broken[1] || r.Name != "retire replaced instances") {
					t.Errorf("expected a state for the rule %q, found none", r.Name)
				}
			}
			t.Logf("%d states, %d kinds of steps", len(explorer.States()), len(used))
		})
	}
}

// findOverlaps returns violations of the barrier, which are Pods of a revision next to Pods below that revision's last
// stop.
func findOverlaps(w modelState) []string {
	if w.overlap {
		return nil
	}
	var wrong []string
	for newer := range w.pods {
		for older := range newer {
			if w.pods[newer] != (modelPods{}) && w.pods[older] != (modelPods{}) && int8(older) < w.lastOf[newer] {
				wrong = append(wrong, fmt.Sprintf("revision %d runs next to %d", newer, older))
			}
		}
	}
	return wrong
}

// findUnsafe returns the errors in a plan that was decided in the state w. decided is the same state with the plan's
// action pending.
func findUnsafe(w modelState, p Plan, decided modelState) []string {
	var wrong []string
	o := w.observe()
	switch do := p.Do.(type) {
	case Nothing:
	case CreateLRP:
		if !w.started || do.Revision != o.TargetRevision() || do.Instances < 1 || do.Instances > o.Desired {
			wrong = append(wrong, "creates an unwanted LRP")
		}
	case ScaleLRP:
		if !w.started {
			wrong = append(wrong, "scales a stopped app")
		}
	case DeleteLRPs:
		for r, gone := range revisionsNamed(do.Names...) {
			if gone && w.started && !w.cancelled && int8(r) >= w.rev {
				wrong = append(wrong, "deletes a revision that is not older")
			}
		}
		if w.started && w.ongoing && !w.cancelled && w.countRestorable() > 0 && decided.act().countRestorable() == 0 {
			wrong = append(wrong, "deletes the last revision that a cancel can restore")
		}
	}
	after := decided.act()
	isReplaced := p.Rule == "retire replaced instances" || p.Rule == "delete obsolete LRPs" && w.started && !w.overlap && w.deletesOnlySince(p.Do, w.last)
	if isReplaced && after.countStaying() < min(w.countStaying(), w.desired) {
		wrong = append(wrong, "stops a needed ready instance")
	}
	if running := p.Ready.Status == metav1.ConditionTrue; running && w.started && w.pods[o.TargetRevision()].ready < w.desired {
		wrong = append(wrong, "is ready with too few instances")
	}
	for r, pods := range w.pods {
		if p.Ready.Status == metav1.ConditionTrue && w.started && !w.overlap && int8(r) >= w.last && int64(r) != o.TargetRevision() && pods != (modelPods{}) {
			wrong = append(wrong, fmt.Sprintf("is complete while revision %d has instances", r))
		}
	}
	if p.Ready.Status == metav1.ConditionTrue && !w.started && w.pods != [revisions]modelPods{} {
		wrong = append(wrong, "is stopped with instances")
	}
	return wrong
}

// countStaying returns the number of ready instances that the LRPs will keep.
func (w modelState) countStaying() int8 {
	var n int8
	for r, l := range w.lrps {
		if l.there && !l.deleting {
			n += min(l.instances, w.pods[r].ready)
		}
	}
	return n
}

// deletesOnlySince reports whether an action deletes only LRPs of the revision first and later ones.
func (w modelState) deletesOnlySince(do Action, first int8) bool {
	deletion, isDeletion := do.(DeleteLRPs)
	if !isDeletion {
		return false
	}
	gone := revisionsNamed(deletion.Names...)
	return !slices.Contains(gone[:first], true)
}

// countRestorable returns the number of LRPs that a cancellation of the deployment could restore.
func (w modelState) countRestorable() int {
	n := 0
	for r := w.last; r < w.rev; r++ {
		if w.lrps[r].there && !w.lrps[r].deleting {
			n++
		}
	}
	return n
}

// findRestless returns the errors in a state in which the controller has no more work and no disturbances follow.
func findRestless(w modelState) []string {
	const patience = 200
	w.budget = 0
	for range patience {
		if w.decided.kind != "" {
			w = w.act()
			continue
		}
		if next := w.naturalSteps(); len(next) > 0 {
			w = next[0]
			continue
		}
		n, p := w.decide()
		if p.Do == (Nothing{}) {
			return findUnwanted(w, p)
		}
		w = n
	}
	return []string{"never comes to rest"}
}

func findUnwanted(w modelState, p Plan) []string {
	var wrong []string
	target := w.observe().TargetRevision()
	if w.broken[target] && w.started && w.desired > 0 {
		// A revision that never becomes ready may remain, unless an older revision could run in its place.
		for r := w.last; r < w.rev && w.cancelled; r++ {
			if w.lrps[r].there && !w.lrps[r].deleting && !w.broken[r] {
				wrong = append(wrong, fmt.Sprintf("rests with revision %d, which never becomes ready, while %d could run", target, r))
			}
		}
		return wrong
	}
	for r := range w.lrps {
		l, pods := w.lrps[r], w.pods[r]
		if int64(r) == target && w.started {
			if pods != (modelPods{ready: w.desired}) || w.desired > 0 && l != (modelLRP{there: true, instances: w.desired}) {
				wrong = append(wrong, fmt.Sprintf("rests with revision %d as %+v %+v", r, l, pods))
			}
		} else if l.there || pods != (modelPods{}) {
			wrong = append(wrong, fmt.Sprintf("rests with remains of revision %d: %+v %+v", r, l, pods))
		}
	}
	if p.Ready.Status != metav1.ConditionTrue || p.Draining.Status != metav1.ConditionFalse || p.After != 0 {
		wrong = append(wrong, fmt.Sprintf("rests with %q: %+v %+v %s", p.Rule, p.Ready, p.Draining, p.After))
	}
	return wrong
}

// TestDecideIsTotal checks that every small Observed has a complete plan, even if the model does not reach it.
func TestDecideIsTotal(t *testing.T) {
	used, total := map[string]int{}, 0
	for bits := range 1 << 12 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		for desired := range int32(3) {
			o := Observed{
				Now: testNow(), ProcessGUID: guid, Desired: desired, Deleted: bit(0) && bit(1) && bit(2), NameTaken: bit(1) && bit(9),
				App: DesiredApp{Started: bit(3), Revision: 2, LastStop: 1, Overlap: bit(4), DrainTimeout: time.Minute, Rollout: RolloutOptions{Cancelled: bit(5), CanaryPercent: 50}},
			}
			if bit(0) && bit(10) {
				o.App.Unreadable = "not a number"
			}
			if bit(1) && bit(10) {
				o.UpstreamPods = 1
			}
			if bit(2) && bit(10) {
				o.NoDroplet = "no droplet"
			}
			for r := range int64(4) {
				if bit(int(6 + r)) {
					instances, ready := desired, desired
					if bit(10) {
						instances = 1
					}
					if bit(11) {
						ready = 0
					}
					o.LRPs = append(o.LRPs, ObservedLRP{Name: revision.LRPName(guid, r), Revision: r, Instances: instances, Deleting: bit(int(r))})
					o.Pods = append(o.Pods, podstatus.RevisionPods{Revision: r, Alive: instances, Ready: min(instances, ready), Draining: 1, Since: testNow()})
				}
			}
			p := Decide(o)
			used[p.Rule]++
			total++
			if p.Rule == "" || p.Do == nil || p.Ready.Status == "" || p.Ready.Reason == "" || p.Ready.Message == "" || p.Draining.Reason == "" || p.After < 0 {
				t.Fatalf("observed %+v\nplan %+v", o, p)
			}
		}
	}
	for _, r := range Rules() {
		if used[r.Name] == 0 {
			t.Errorf("expected an observation for the rule %q, found none", r.Name)
		}
	}
	t.Logf("%d observations for %d rules", total, len(used))
}
