// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/test/env/model"
)

const (
	maxGeneration = 3
	maxResumes    = 2
	maxFailures   = 2
)

// modelState is a pool, its cluster and a manager. Times are counted in resumes or reads.
type modelState struct {
	generation, observed int64
	// target is the generation applied to the cluster; 0 stands for a manual edit.
	target int64
	// resumes is the number of the cluster's last resume. synced is the last resume after which a job ran.
	resumes, synced   int
	isAwake, isPaused bool
	// isRunning is true while a job is in progress that began while the cluster was running. jobGeneration and
	// jobResume are its inputs.
	isRunning                bool
	jobGeneration            int64
	jobResume                int
	hasAnswer, hasSucceeded  bool
	failures                 int
	mustWait, isLookDue, was bool
}

func timeOf(resume int) *metav1.Time {
	if resume == 0 {
		return nil
	}
	return new(metav1.NewTime(now.Add(time.Duration(resume) * time.Second)))
}

func (m modelState) observe() Observed {
	o := observed()
	o.Generation, o.MayDial, o.IsPaused, o.Resume = m.generation, m.isAwake, m.isPaused, timeOf(m.resumes)
	o.Status = hivev1.MachinePoolStatus{ObservedGeneration: m.observed, SyncedResume: timeOf(m.synced)}
	if m.was {
		o.Status.LastSyncTime = new(metav1.NewTime(o.Now))
	}
	if m.isLookDue {
		o.Now = o.Now.Add(time.Hour)
	}
	if m.mustWait {
		failing(&Refusal{hivev1.MachinePoolRefusedReason, "no"}, "")(&o)
	}
	if m.hasAnswer {
		o.Answer = &Answer{Job: Job{Generation: m.jobGeneration, Resume: timeOf(m.jobResume)}, At: o.Now, IsComplete: m.hasSucceeded}
	}
	return o
}

// step is one pass, the end of the job, or the end of the interval that a pass waits for.
func (m modelState) step() model.Move[modelState] {
	if m.isRunning {
		next := m
		next.isRunning, next.hasAnswer, next.hasSucceeded = false, true, m.isAwake && !m.isPaused
		if next.hasSucceeded {
			next.target = m.jobGeneration
		}
		return model.Move[modelState]{Name: "the job ends", To: next}
	}
	plan := Decide(m.observe())
	next := m
	if next.hasAnswer, next.hasSucceeded = false, false; m.hasAnswer && m.hasSucceeded {
		next.observed, next.synced, next.isLookDue, next.was, next.mustWait = plan.Status.ObservedGeneration, m.jobResume, false, true, false
	}
	switch {
	case plan.Job != nil && !m.hasAnswer:
		next.isRunning, next.jobGeneration, next.jobResume = true, plan.Job.Generation, m.resumes
	case plan.Job == nil && plan.RequeueAfter > 0 && m.mustWait:
		next.mustWait = false
	}
	if !next.isRunning {
		next.jobGeneration, next.jobResume = 0, 0
	}
	return model.Move[modelState]{Name: plan.Rule, To: next}
}

func (m modelState) disturb() []model.Move[modelState] {
	var moves []model.Move[modelState]
	move := func(name string, isPossible bool, change func(*modelState)) {
		if next := m; isPossible {
			change(&next)
			moves = append(moves, model.Move[modelState]{Name: name, To: next})
		}
	}
	move("the pool changes", m.generation < maxGeneration, func(s *modelState) { s.generation, s.mustWait = s.generation+1, false })
	move("the cluster hibernates", m.isAwake, func(s *modelState) { s.isAwake = false })
	move("the cluster resumes", !m.isAwake && m.resumes < maxResumes, func(s *modelState) { s.isAwake, s.resumes, s.mustWait = true, s.resumes+1, false })
	move("a user changes a MachineSet", m.isAwake && m.target != 0, func(s *modelState) { s.target = 0 })
	move("half an hour passes", m.isAwake && m.was && !m.isLookDue && m.target != m.observed, func(s *modelState) { s.isLookDue = true })
	move("the cluster is paused", !m.isPaused, func(s *modelState) { s.isPaused = true })
	move("the pause ends", m.isPaused, func(s *modelState) { s.isPaused = false })
	move("the cluster refuses", m.isRunning && m.isAwake && m.failures < maxFailures, func(s *modelState) {
		s.isRunning, s.hasAnswer, s.hasSucceeded, s.failures, s.mustWait = false, true, false, s.failures+1, true
	})
	move("the manager dies", m.isRunning || m.hasAnswer || m.mustWait, func(s *modelState) {
		s.isRunning, s.hasAnswer, s.hasSucceeded, s.mustWait, s.jobGeneration, s.jobResume = false, false, false, false, 0, 0
	})
	return moves
}

// check verifies a step and the state at rest.
func (m modelState) check(step model.Move[modelState]) []string {
	var wrong []string
	begins := step.To.isRunning && !m.isRunning
	if begins && (!m.isAwake || m.isPaused) {
		wrong = append(wrong, "a cluster is dialled that hibernates or is paused")
	}
	if begins && m.was && m.observed == m.generation && m.synced == m.resumes && !m.isLookDue {
		wrong = append(wrong, "a cluster is dialled although it was read since its resume, and nothing has changed")
	}
	isAtRest := step.To == m
	if isAtRest && m.isAwake && !m.isPaused && (m.observed != m.generation || m.synced != m.resumes || m.isLookDue) {
		wrong = append(wrong, "the pool rests although the cluster must be read")
	}
	if isAtRest && m.isAwake && !m.isPaused && m.target != m.generation && m.target != 0 {
		wrong = append(wrong, fmt.Sprintf("the pool rests although the cluster has the generation %d", m.target))
	}
	return wrong
}

// TestEveryHistoryConvergesToThePool tries every order of changes, hibernations, resumes, edits, refusals, pauses and
// crashes of the manager.
func TestEveryHistoryConvergesToThePool(t *testing.T) {
	explorer := model.Explore(t, model.Model[modelState]{
		Step: modelState.step, Disturb: modelState.disturb,
		Check: func(from modelState, step model.Move[modelState]) []string { return from.check(step) },
	}, modelState{generation: 1, isAwake: true})
	states := explorer.States()
	t.Logf("%d states", len(states))
	for _, rule := range rules() {
		switch rule.Name {
		case "the pool is being deleted", "the ClusterDeployment is missing", "the pool is invalid": // This rule does not depend on any other input.
		default:
			if explorer.Steps()[rule.Name] == 0 {
				t.Errorf("expected the rule %q to match in some state, found none", rule.Name)
			}
		}
	}
}
