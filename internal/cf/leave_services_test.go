// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// podEnds records how the Pods of an app leave their Services and terminate.
type podEnds struct {
	mu sync.Mutex
	// left is the time at which each Pod was first observed without its Services. ended is the time at which the Pod
	// was first observed to terminate.
	left, ended map[string]time.Time
	// returned holds the Pods that left their Services and were selected again later.
	returned map[string]bool
}

// watchEnds watches the app's Pods until the test ends.
func (a *app) watchEnds(t *testing.T) *podEnds {
	t.Helper()
	c, err := client.NewWithWatch(a.Config, client.Options{Scheme: a.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	w, err := c.Watch(context.WithoutCancel(t.Context()), &corev1.PodList{}, client.InNamespace(a.namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: a.name})
	testenv.ExpectNoError(t, err)
	t.Cleanup(w.Stop)
	ends := &podEnds{left: map[string]time.Time{}, ended: map[string]time.Time{}, returned: map[string]bool{}}
	go func() {
		for e := range w.ResultChan() {
			ends.record(e)
		}
	}()
	return ends
}

func (p *podEnds) record(e watch.Event) {
	pod, isPod := e.Object.(*corev1.Pod)
	if !isPod {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := time.Now(), pod.Labels[korifiv1alpha1.VersionLabel]+"/"+podstatus.InstanceIndex(pod)
	_, hasLeft := p.left[key]
	switch isOut := !podstatus.LeftServicesAt(pod).IsZero(); {
	case isOut && !hasLeft:
		p.left[key] = now
	case !isOut && hasLeft && pod.Labels[korifiv1alpha1.ProcessTypeLabel] != "":
		p.returned[key] = true
	}
	if _, known := p.ended[key]; !known && podstatus.IsTerminating(pod) {
		p.ended[key] = now
	}
}

// expectServedOn expects that each of the Pods continued to serve for the stop delay after it had left its Services.
func (p *podEnds) expectServedOn(t *testing.T, pods ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range pods {
		left, hasLeft := p.left[pod]
		ended, hasEnded := p.ended[pod]
		// The watch may observe the two events slightly closer together than they happened.
		if served := ended.Sub(left); !hasLeft || !hasEnded || served < stopDelay*9/10 {
			t.Errorf("Pod %s: expected it to serve for %s after it left its Services, found that it left %t, ended %t, and served for %s", pod, stopDelay, hasLeft, hasEnded, served)
		}
	}
}

// An instance that is replaced or scaled down leaves its Services before it terminates. A restart or a stop terminates
// all instances immediately.
func TestReplacedInstancesLeaveTheirServicesFirst(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	ends := a.watchEnds(t)
	d := a.createDeployment(t, "one", rolling())
	a.waitForDeployment(t, d, torporv1alpha1.DeployedState)
	ends.expectServedOn(t, "0/0", "0/1")
	a.setInstances(t, 1)
	a.waitForInstances(t, 1)
	testenv.Eventually(t, "one instance is left", func() error {
		n := len(a.listPods(t))
		return testenv.ErrorIf(n != 1, "found %d", n)
	})
	ends.expectServedOn(t, "1/1")
	a.requestRestart(t, "twice")
	a.waitUntilRunning(t)
	a.waitForRevisions(t, "2")
	a.setState(t, stopped)
	a.waitUntilStopped(t)
	ends.mu.Lock()
	defer ends.mu.Unlock()
	for _, pod := range []string{"1/0", "2/0"} {
		if _, hasLeft := ends.left[pod]; hasLeft || ends.ended[pod].IsZero() {
			t.Errorf("Pod %s: expected it to end at once, found that it left its Services first: %t", pod, hasLeft)
		}
	}
}

// A cancellation adds instances to their Services again if they have left them and still run.
func TestCancelReturnsInstancesToTheirServices(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	ends := a.watchEnds(t)
	d := a.createDeployment(t, "one", torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: []torporv1alpha1.CanaryStep{{InstanceWeight: 50}}})
	testenv.Eventually(t, "an instance has left its Services", func() error {
		ends.mu.Lock()
		defer ends.mu.Unlock()
		return testenv.ErrorIf(len(ends.left) == 0, "found %d", len(ends.left))
	})
	a.patchDeployment(t, d, `{"spec":{"cancelled":true}}`)
	a.waitForDeployment(t, d, torporv1alpha1.CanceledState)
	a.expectOnlyRevision(t, "0")
	for _, pod := range a.listPods(t) {
		if podstatus.IsEnding(&pod) || pod.Labels[korifiv1alpha1.ProcessTypeLabel] != korifiv1alpha1.WebProcess {
			t.Errorf("expected Services to select %s, found the labels %v", pod.Name, pod.Labels)
		}
	}
	ends.mu.Lock()
	defer ends.mu.Unlock()
	if hasEnded := !ends.ended["0/1"].IsZero(); !hasEnded && len(ends.returned) == 0 {
		t.Errorf("expected an instance to return to its Services, found %s", fmt.Sprintf("%+v", ends.left))
	}
}
