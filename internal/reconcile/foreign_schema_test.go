// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// countedWrites counts write requests.
type countedWrites struct {
	http.RoundTripper
	writes *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c countedWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

func TestStatusUnderAnotherProjectsSchema(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	env.InstallCRDs(t, filepath.Join("..", "..", "test", "e2e", "foreign", "testdata", "crds", "clusterdeployments.yaml"))
	var writes atomic.Int64
	counted, err := client.New(env.WithTransport(func(next http.RoundTripper) http.RoundTripper { return countedWrites{next, &writes} }).Config,
		client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "test"}, "keys", "kubeconfig")
	env.ExpectCreated(t, cd)
	// Conditions of another controller. Torpor's type cannot represent either of them without a change.
	theirs := []any{
		map[string]any{"type": "Provisioned", "status": "True"},
		map[string]any{"type": "DNSNotReady", "status": "False", "reason": "", "lastProbeTime": "2026-01-01T00:00:00Z"},
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(hivev1.ClusterDeploymentKind())
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), u); err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = map[string]any{"conditions": theirs, "installedTimestamp": "2026-01-01T00:00:00Z"}
	if err := env.Client.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}

	recorder, sleepStartedAt := events.NewFakeRecorder(10), metav1.Unix(1, 0)
	var seen *hivev1.HibernationRecord
	pass := func() *reconcile.Pass[*hivev1.ClusterDeployment, int, int] {
		return &reconcile.Pass[*hivev1.ClusterDeployment, int, int]{
			Hub: reconcile.Hub{Client: counted, Recorder: recorder, Clock: clock.RealClock{}, Owner: "tester"},
			New: func() *hivev1.ClusterDeployment { return &hivev1.ClusterDeployment{} },
			Observe: func(_ context.Context, cd *hivev1.ClusterDeployment) (int, error) {
				seen = cd.Status.Hibernation.DeepCopy()
				return 0, nil
			},
			Decide: func(int) int { return 0 },
			Report: func(cd *hivev1.ClusterDeployment, _, _ int, _ *reconcile.RefusedError) reconcile.FollowUp {
				cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: sleepStartedAt, RequestedBy: "alice"}
				reconcile.SetConditions(&cd.Status.Conditions, map[string]decision.Condition{"Ready": decision.True("Running", "it runs")}, cd.Generation, clock.RealClock{})
				return reconcile.FollowUp{RequeueAfter: time.Millisecond}
			},
			Status: reconcilestatus.Storage[*hivev1.ClusterDeployment]{
				Conditions: func(cd *hivev1.ClusterDeployment) *[]metav1.Condition { return &cd.Status.Conditions },
				Remember: func(cd *hivev1.ClusterDeployment) map[string]any {
					return map[string]any{"hibernation": cd.Status.Hibernation}
				},
			},
		}
	}
	first, request := pass(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cd)}
	reconcileOnce := func(p *reconcile.Pass[*hivev1.ClusterDeployment, int, int]) ctrl.Result {
		t.Helper()
		result, err := p.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	reconcileOnce(first)
	if n := writes.Load(); n != 3 {
		t.Errorf("expected the status, what it lacks and the annotation to be written in 3 requests, found %d", n)
	}
	if note := <-recorder.Events; !strings.Contains(note, "SchemaLacksField") || !strings.Contains(note, "status.hibernation") {
		t.Errorf("expected an event that names the field, found %s", note)
	}
	if err := env.Client.Get(t.Context(), request.NamespacedName, u); err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	if diff := cmp.Diff(theirs, conditions[:len(theirs)]); diff != "" {
		t.Errorf("conditions of another controller (-want +got):\n%s", diff)
	}
	if at, _, _ := unstructured.NestedString(u.Object, "status", "installedTimestamp"); at == "" {
		t.Error("expected status.installedTimestamp to stay, found it gone")
	}
	if text := u.GetAnnotations()[statusannotation.KeyOf("tester")]; !strings.Contains(text, "alice") {
		t.Errorf("expected the record in an annotation, found %q", text)
	}
	env.WaitForCondition(t, cd, "StatusFullyStored", metav1.ConditionFalse, "SchemaLacksField")

	// Later passes, including those of a restarted manager, do not repeat the write.
	writes.Store(0)
	for range 3 {
		reconcileOnce(first)
	}
	second := pass()
	for range 3 {
		reconcileOnce(second)
	}
	if seen == nil || !seen.SleepStartedAt.Equal(&sleepStartedAt) || writes.Load() > 1 {
		t.Errorf("expected the record to be remembered and at most one more write, found %v and %d", seen, writes.Load())
	}

	// A pass whose report is not stored anywhere backs off, whatever interval its rule requests.
	loses := pass()
	loses.Status.Remember = nil
	report := loses.Report
	loses.Report = func(cd *hivev1.ClusterDeployment, a, b int, refused *reconcile.RefusedError) reconcile.FollowUp {
		out := report(cd, a, b, refused)
		cd.Status.Hibernation.RequestedBy = "bob"
		return out
	}
	for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if result := reconcileOnce(loses); result.RequeueAfter != want {
			t.Errorf("expected a pass after %s, found %s", want, result.RequeueAfter)
		}
	}

	// A record that is too large for an annotation is not stored anywhere, and a condition reports this.
	huge := pass()
	huge.Report = func(cd *hivev1.ClusterDeployment, _, _ int, _ *reconcile.RefusedError) reconcile.FollowUp {
		cd.Status.Hibernation = &hivev1.HibernationRecord{SleepStartedAt: sleepStartedAt}
		for i := range 1000 {
			cd.Status.Hibernation.Nodes = append(cd.Status.Hibernation.Nodes, hivev1.RecordedNode{Name: fmt.Sprintf("node-%d%s", i, strings.Repeat("x", 150))})
		}
		return reconcile.FollowUp{RequeueAfter: time.Millisecond}
	}
	writes.Store(0)
	for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if result := reconcileOnce(huge); result.RequeueAfter != want {
			t.Errorf("expected a pass after %s for a record that is too large, found %s", want, result.RequeueAfter)
		}
	}
	env.WaitForCondition(t, cd, "StatusFullyStored", metav1.ConditionFalse, "TooLargeToRemember")
	if n := writes.Load(); n > 4 {
		t.Errorf("expected at most 4 writes of a record that is too large, found %d", n)
	}

	// Torpor's schema replaces the other one: the status has the record again.
	env.InstallCRDs(t)
	testenv.Eventually(t, "the status has the record", func() error {
		p := pass()
		sleepStartedAt = metav1.NewTime(sleepStartedAt.Add(time.Second))
		reconcileOnce(p)
		return env.Client.Get(t.Context(), request.NamespacedName, cd)
	})
	env.WaitFor(t, "the record", cd, func() error { return nil })
	if cd.Status.Hibernation == nil || !cd.Status.Hibernation.SleepStartedAt.Equal(&sleepStartedAt) {
		t.Errorf("expected the record in the status, found %v", cd.Status.Hibernation)
	}

	// A change to a recoverable field alone does not cause a write of the annotation, but the annotation must not
	// keep an old value.
	lazy, record := pass(), &hivev1.HibernationRecord{SleepStartedAt: sleepStartedAt, RequestedBy: "carol"}
	lazy.Status.RemembersAlways, lazy.Status.Recoverable = true, []string{"hibernation.asleepAt", "hibernation.resumeStartedAt"}
	isHurried := false
	lazy.Report = func(cd *hivev1.ClusterDeployment, _, _ int, _ *reconcile.RefusedError) reconcile.FollowUp {
		cd.Status.Hibernation = record.DeepCopy()
		return reconcile.FollowUp{RemembersLater: isHurried}
	}
	nine := new(metav1.Unix(9, 0))
	for _, row := range []struct {
		by                                   string
		asleepAt, resumeStartedAt, resumedAt *metav1.Time
		isHurried                            bool
		writes                               int64
	}{
		{by: "carol", writes: 2},
		{by: "carol", asleepAt: nine, writes: 1},
		{by: "carol", asleepAt: nine, resumeStartedAt: nine, writes: 1},
		{by: "carol", asleepAt: nine, resumeStartedAt: nine, resumedAt: nine, isHurried: true, writes: 1},
		{by: "carol", asleepAt: nine, resumeStartedAt: nine, resumedAt: nine, writes: 1}, // Only the annotation is written.
		{by: "dave", asleepAt: nine, resumeStartedAt: nine, resumedAt: nine, writes: 2},
		{by: "dave", resumeStartedAt: nine, resumedAt: nine, writes: 2},
		{by: "dave", resumeStartedAt: nine, resumedAt: nine},
	} {
		record.RequestedBy, record.AsleepAt, record.ResumeStartedAt, record.ResumedAt, isHurried = row.by, row.asleepAt, row.resumeStartedAt, row.resumedAt, row.isHurried
		writes.Store(0)
		reconcileOnce(lazy)
		if n := writes.Load(); n != row.writes {
			t.Errorf("%+v: expected %d writes, found %d", row, row.writes, n)
		}
	}

	// If the schema does not keep the field, the annotation is written immediately.
	env.InstallCRDs(t, filepath.Join("..", "..", "test", "e2e", "foreign", "testdata", "crds", "clusterdeployments.yaml"))
	isHurried = true
	testenv.Eventually(t, "the annotation has the fields that the schema drops now", func() error {
		record.RequestedBy += "."
		reconcileOnce(lazy)
		err := env.Client.Get(t.Context(), request.NamespacedName, u)
		if text := u.GetAnnotations()[statusannotation.KeyOf("tester")]; err == nil && !strings.Contains(text, record.RequestedBy) {
			return fmt.Errorf("found %s", text)
		}
		return err
	})
}
