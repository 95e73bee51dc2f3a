// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"fmt"
	"testing"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestRestart runs on one control plane; each story has an app of its own.
func TestRestart(t *testing.T) {
	s := newStage(t)
	t.Run("a restart is told of", s.testTold) // First, because metrics are of all apps.
	t.Run("stop and start", s.testStopAndStart)
	t.Run("orgs and spaces are namespaces", s.testSpaces)
	t.Run("an app takes everything with it", s.testDelete)
	t.Run("an app that is deployed is deleted", s.testDeleteInDeployment)
	t.Run("a space takes its apps with it", s.testDeleteSpace)
	t.Run("a droplet brings its processes", s.testProcesses)
	t.Run("a package and a build say how they are", s.testStaging)
	t.Run("secrets stay where they are", s.testSecrets)
	t.Run("a template stays", s.testTemplateStays)
	t.Run("overlap is a choice", s.testOverlap)
	t.Run("a drain may time out", s.testDrainTimeout)
	t.Run("race c: many requests at once", s.testManyRequests)
	t.Run("race d: a revision is lowered", s.testLowered)
	t.Run("race f: strict drain", s.testStrict)
	t.Run("race g: only the current revision is told of", s.testStats)
	t.Run("race h: a name is taken", s.testNameTaken)
	t.Run("race i: scaled to zero", s.testZero)
	t.Run("race j: a client goes away", s.testAborts)
	t.Run("race k: a crash loop", s.testCrash)
	t.Run("race l: rolling", s.testRolling)
	t.Run("race l: cancelled", s.testCancel)
	t.Run("a canary waits", s.testCanary)
	t.Run("a deployment is superseded", s.testSuperseded)
	t.Run("the later of two deployments", s.testLater)
	t.Run("a canary is cancelled", s.testCanaryCancelled)
	t.Run("a deployment of a stopped app", s.testDeployStopped)
	t.Run("race l: a slow drain is waited for", s.testSlowDeployment)
	t.Run("a rollback", s.testRollback)
	t.Run("deployments that are over go", s.testPrune)
	t.Run("race m: a budget for each revision", s.testBudgets)
	t.Run("race n: one instance of twelve", s.testInstance)
	t.Run("race o: a dying object", s.testDyingObject)
	t.Run("race p: a newer LRP", s.testNewerLRP)
	t.Run("race q: a droplet waits", s.testDroplet)
	t.Run("race a: two hundred restarts", s.testTwoHundred)
}

func (s *stage) testStopAndStart(t *testing.T) {
	a := s.newApp(t, options{instances: 2})
	a.awaitsRunning(t)
	a.set(t, stopped)
	a.awaitsStopped(t)
	if pods := a.listPods(t); len(pods) != 0 {
		t.Errorf("expected no Pod of a stopped app, found %d", len(pods))
	}
	a.set(t, started)
	a.awaitsRunning(t)
}

// The ADR's decision: a stop and a start within milliseconds, two hundred times.
func (s *stage) testTwoHundred(t *testing.T) {
	const times = 200
	a := s.newApp(t, options{instances: 2})
	h := a.follow(t)
	a.awaitsRunning(t)
	began := time.Now()
	for i := range times {
		a.set(t, stopped)
		if found := a.set(t, started).Annotations[revisionAnnotation]; found != fmt.Sprint(i+1) {
			t.Fatalf("expected revision %d, found %s", i+1, found)
		}
	}
	asked := time.Now()
	a.awaitsRunning(t)
	testenv.Eventually(t, "only the last revision is left", func() error {
		for _, l := range a.lrps(t) {
			if l.Spec.Version != fmt.Sprint(times) {
				return fmt.Errorf("found the LRP of revision %s", l.Spec.Version)
			}
		}
		return nil
	})
	for _, p := range a.listPods(t) {
		if p.Labels[korifiv1alpha1.VersionLabel] != fmt.Sprint(times) {
			t.Errorf("found the Pod %s of revision %s", p.Name, p.Labels[korifiv1alpha1.VersionLabel])
		}
	}
	for name, n := range h.names() {
		if n > 1 {
			t.Errorf("the name %s was used for %d LRPs", name, n)
		}
	}
	if most, overlap := h.seen(); most > 1 || overlap > 0 {
		t.Errorf("expected never two revisions with Pods, found %d for %s", most, overlap)
	}
	t.Logf("%d restarts, asked for in %s, made %d LRPs; all was settled %s later", times, asked.Sub(began), len(h.names()), time.Since(asked))
}
