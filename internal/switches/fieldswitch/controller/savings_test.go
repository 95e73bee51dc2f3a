// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stop/savings"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestSavingsOfADeploymentSurviveTheManager stops a Deployment for three hours. The manager runs in the first hour,
// not in the second, and a new one in the third. The start records the savings that the metrics show, and a later
// manager shows them again.
func TestSavingsOfADeploymentSurviveTheManager(t *testing.T) {
	s := &story{Environment: shared.Get(t), observer: &observed{kinds: map[string]bool{}, changed: map[string]int{}}, metrics: NewMetrics()}
	s.namespace = s.CreateNamespace(t)
	now := clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))
	s.clock = now
	pass := func(d time.Duration) { now.SetTime(now.Now().Add(d)) }
	nextManager := func() {
		s.metrics = NewMetrics() // A new process has counted no savings itself.
		s.start(t)
	}
	show := func(cpu, memory int64) {
		t.Helper()
		want := []string{
			fmt.Sprintf(`torpor_saved_cpu_seconds_total{kind="Deployment",name="shop"} %d`, cpu),
			fmt.Sprintf(`torpor_saved_memory_byte_seconds_total{kind="Deployment",name="shop"} %d`, memory),
		}
		testenv.Eventually(t, "the counters", func() error {
			found := slices.DeleteFunc(s.listMetrics(t), func(line string) bool { return !strings.HasPrefix(line, "torpor_saved") })
			return testenv.ErrorIf(!slices.Equal(found, want), "expected %v, found %v", want, found)
		})
	}
	const mebibyte = 1 << 20
	s.start(t)
	u := s.create(t, strings.ReplaceAll(deployment("shop"), "image: example.com/a", "image: example.com/a, resources: {requests: {cpu: 500m, memory: 100Mi}}"))
	s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": "true"}}}`)
	s.waitFor(t, "the Deployment is stopped", u, true, replicasAre(0))
	show(0, 0)
	pass(time.Hour)
	show(3*1800, 3*3600*100*mebibyte)
	s.stop()
	pass(time.Hour)
	nextManager()
	show(3*3600, 3*7200*100*mebibyte)
	pass(time.Hour)
	s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": null}}}`)
	s.waitFor(t, "the Deployment is started", u, false, replicasAre(3))
	// The hours after a start count until the cache contains the start.
	testenv.Eventually(t, "the start in the cache", func() error {
		return testenv.ErrorIf(s.readCachedSavings(t, u).Since != nil, "the stop is still in effect")
	})
	pass(time.Hour)
	show(3*5400, 3*10800*100*mebibyte)
	s.stop()
	nextManager()
	defer func() { s.stop() }()
	show(3*5400, 3*10800*100*mebibyte)
	if found := savings.ReadAnnotation(u.GetAnnotations()); found == nil || found.Since != nil || found.CPUMilliSeconds != 3*5400*1000 {
		t.Errorf("expected the sum on the object, found %+v", found)
	}
}

// readCachedSavings returns the savings of a Deployment in the cache of the manager.
func (s *story) readCachedSavings(t *testing.T, u *unstructured.Unstructured) *torporv1alpha1.Savings {
	t.Helper()
	s.metrics.mu.Lock()
	kind := s.metrics.kinds[u.GroupVersionKind().GroupKind()]
	s.metrics.mu.Unlock()
	list := kind.NewMetadataList()
	testenv.ExpectNoError(t, kind.reader.List(t.Context(), list, client.InNamespace(s.namespace)))
	if len(list.Items) != 1 {
		t.Fatalf("expected one Deployment in the cache, found %d", len(list.Items))
	}
	return savings.ReadAnnotation(list.Items[0].Annotations)
}
