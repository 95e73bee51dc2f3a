// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// If the creation of an LRP is refused, for example by a quota, a user must act. Clients show the message only for the
// reason Blocked.
func TestAStartThatIsRefusedIsBlocked(t *testing.T) {
	t.Parallel()
	c := Controller{Metrics: NewMetrics(), Clock: clock.RealClock{}}
	for do, want := range map[process.Action]string{
		process.CreateLRP{Name: "new", Instances: 1}: korifiv1alpha1.BlockedReason, process.ScaleLRP{Name: "old", Instances: 2}: korifiv1alpha1.StartingReason,
	} {
		obj := &korifiv1alpha1.CFProcess{}
		plan := process.Plan{Do: do, Ready: decision.False(korifiv1alpha1.StartingReason, "0 of 1 instances are ready")}
		c.report(obj, &observation{process: obj}, plan, &reconcile.RefusedError{Message: "exceeded quota: small"})
		ready := meta.FindStatusCondition(obj.Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready.Reason != want || !strings.HasSuffix(ready.Message, "exceeded quota: small") {
			t.Errorf("%T: expected %s and the reason, found %+v", do, want, ready)
		}
	}
}

// A revision becomes ready for the first time only once. If an instance crashes on the third day and restarts, its
// start did not take three days.
func TestARevisionIsFirstReadyOnce(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	metrics, registry := NewMetrics(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	c := Controller{Metrics: metrics, Clock: clock.RealClock{}}
	obj := &korifiv1alpha1.CFProcess{}
	obj.Name = "web"
	lrp := eiriniv1.LRP{}
	lrp.Name, lrp.CreationTimestamp = revision.LRPName("web", 0), metav1.Time{Time: made}
	for i, now := range []struct {
		after time.Duration
		ready int32
		count uint64
	}{
		{time.Second, 0, 0}, {2 * time.Second, 1, 1}, {time.Minute, 1, 1}, {72 * time.Hour, 0, 1}, {73 * time.Hour, 1, 1},
	} {
		seen := &observation{process: obj, lrps: []eiriniv1.LRP{lrp}, Observed: process.Observed{
			Now: made.Add(now.after), ProcessGUID: "web", Desired: 1, LRPs: []process.ObservedLRP{{Name: lrp.Name, Instances: 1}},
			Pods: []podstatus.RevisionPods{{Alive: 1, Ready: now.ready}},
		}}
		c.report(obj, seen, process.Plan{}, nil).AfterSave()
		if count := countFirstReady(t, registry); count != now.count {
			t.Errorf("step %d: expected %d revisions that were first ready, found %d", i, now.count, count)
		}
	}
	if at := obj.Status.Revisions[0].FirstReadyAt; at == nil || !at.Time.Equal(made.Add(2*time.Second)) {
		t.Errorf("expected the time of the first ready instance, found %v", at)
	}
}

func countFirstReady(t *testing.T, registry *prometheus.Registry) uint64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "torpor_app_first_ready_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("expected torpor_app_first_ready_seconds, found other metrics only")
	return 0
}
