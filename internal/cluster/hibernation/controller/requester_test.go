// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const recordPolicy = "torpor-hibernation-record"

// newHub starts an API server with the policy that records the requester of each power state change.
func newHub(t testing.TB) *testenv.Environment {
	t.Helper()
	e := testenv.Start(t)
	e.ApplyManifest(t, "record/hibernation.yaml")
	e.ApplyManifest(t, "features/hibernation/record_policy.yaml")
	testenv.Eventually(t, "requesters are recorded", func() error {
		noted, err := noteOfCreation(t, e)
		return errors.Join(err, testenv.ErrorIf(noted == "", "found no note"))
	})
	return e
}

// noteOfCreation returns the requester that the API server would record for the creation of a hibernating cluster.
func noteOfCreation(t testing.TB, e *testenv.Environment) (string, error) {
	t.Helper()
	cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: "default", Name: "noted"}, cloudSecret, adminSecret)
	cd.Spec.PowerState = hivev1.PowerStateHibernating
	if err := e.Client.Create(t.Context(), cd, client.DryRunAll); err != nil {
		return "", fmt.Errorf("try a creation: %w", err)
	}
	return cd.Annotations[torporv1alpha1.RequestedByAnnotation], nil
}

// clientOf returns a client of a user with all rights.
func (e *env) clientOf(t *testing.T, who string) client.Client {
	t.Helper()
	c, err := client.New(e.ImpersonateUser(who, "system:masters"), client.Options{Scheme: e.Client.Scheme(), Mapper: e.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	return c
}

// TestRequesterIsRecorded stops a cluster with a forged requester in the request. It then deletes the policy that
// records requesters, and stops the cluster again.
func TestRequesterIsRecorded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"annotations":{%q:"the-ceo",%q:"none",%q:"48h",%q:"a change of disks"}},"spec":{"powerState":"Hibernating"}}`,
		torporv1alpha1.RequestedByAnnotation, torporv1alpha1.RequestVersionAnnotation, torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.expectRequester(t, "alice")
	e.WaitForEvent(t, s.key.Namespace, hivev1.StoppingHibernationReason, "asked for by alice")

	s.patch(t, "bob", fmt.Sprintf(`{"metadata":{"annotations":{%q:"the-ceo",%q:null}}}`, torporv1alpha1.RequestedByAnnotation, torporv1alpha1.RequestVersionAnnotation))
	s.expectRequester(t, "alice")
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	started := s.get(t)
	if stop := started.Status.Stops[0]; stop.StartedBy != requestingUser || stop.Reason != "a change of disks" || started.Annotations[torporv1alpha1.RequestedByAnnotation] != requestingUser {
		t.Errorf("expected a start by %s, found %+v and %v", requestingUser, stop, started.Annotations)
	}
	for _, leftover := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation} {
		if value, isThere := started.Annotations[leftover]; isThere {
			t.Errorf("expected %s to go with the stop, found %q", leftover, value)
		}
	}

	e.removeNotingPolicy(t)
	forged := fmt.Sprintf(`{"metadata":{"annotations":{%q:"the-ceo"}},"spec":{"powerState":"Hibernating"}}`, torporv1alpha1.RequestedByAnnotation)
	testenv.ExpectRefused(t, e.clientOf(t, "carol").Patch(t.Context(), started, rawMerge(forged)), "expected carol, the user of the request, or the earlier value; found another name")
	s.patch(t, "carol", `{"spec":{"powerState":"Hibernating"}}`)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	if stops := s.get(t).Status.Stops; len(stops) != 2 || stops[0].By != "unknown (field manager some-program)" {
		t.Errorf("expected two stops, the newest without a known requester; found %+v", stops)
	}
	e.WaitForEvent(t, s.key.Namespace, stoprecord.EventRequesterUnknown, "found unknown (field manager some-program)")
}

// TestStopEndsWhileNoManagerRuns uses a stop that expires while no manager runs.
func TestStopEndsWhileNoManagerRuns(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stop := e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.patch(t, "alice", fmt.Sprintf(`{"metadata":{"annotations":{%q:"48h"}},"spec":{"powerState":"Hibernating"}}`, torporv1alpha1.UntilAnnotation))
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	stop()
	s.setUntil(t, "1ms")
	e.startManager(t, clouds())
	s.awaitSettled(t, hivev1.PowerStateRunning)
	found := s.get(t)
	testenv.ExpectEqual(t, "spec.powerState", hivev1.PowerStateHibernating, found.Spec.PowerState)
	if stops := found.Status.Stops; len(stops) != 1 || stops[0].By != "alice" || stops[0].StartedBy != torporv1alpha1.UntilAnnotation {
		t.Errorf("expected one stop by alice that has expired, found %+v", stops)
	}
	if calls := e.cloud.CountCalls(t); calls["StartInstances"] != 1 || calls["StopInstances"] != 1 {
		t.Errorf("expected the machines to be stopped once and started once, found %v", calls)
	}
}

// expectRequester expects a requester in the annotation, in the status and in the column By.
func (s *testCluster) expectRequester(t *testing.T, who string) {
	t.Helper()
	cd := s.get(t)
	testenv.ExpectEqual(t, "the annotation", who, cd.Annotations[torporv1alpha1.RequestedByAnnotation])
	testenv.ExpectEqual(t, "the newest stop", who, cd.Status.Stops[0].By)
	testenv.ExpectEqual(t, "the record of the hibernation", who, cd.Status.Hibernation.RequestedBy)
	table := s.env.GetTable(t, hivev1.GroupVersion().WithResource("clusterdeployments"), s.key)
	for i, column := range table.ColumnDefinitions {
		if column.Name == "By" && fmt.Sprint(table.Rows[0].Cells[i]) != who {
			t.Errorf("expected %s in the By column, found %v", who, table.Rows[0].Cells[i])
		}
	}
}

// removeNotingPolicy deletes the policy that records requesters. The policy that rejects forged requesters remains.
func (e *env) removeNotingPolicy(t *testing.T) {
	t.Helper()
	name := metav1.ObjectMeta{Name: recordPolicy}
	ctx := context.WithoutCancel(t.Context())
	testenv.ExpectNoError(t, errors.Join(
		e.Client.Delete(ctx, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: name}), e.Client.Delete(ctx, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: name}),
	))
	testenv.Eventually(t, "requesters are not recorded", func() error {
		noted, err := noteOfCreation(t, e.Environment)
		return errors.Join(err, testenv.ErrorIf(noted != "", "found %q", noted))
	})
}
