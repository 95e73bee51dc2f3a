// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	optedOut = "hive.openshift.io/infra-disabled"
	optOut   = `{"metadata":{"annotations":{"hive.openshift.io/infra-disabled":"true"}}}`
	optIn    = `{"metadata":{"annotations":{"hive.openshift.io/infra-disabled":null}}}`
)

// TestInfraDisabled checks that no machine is started, stopped or listed for clusters whose owners have opted out.
func TestInfraDisabled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.patch(t, "alice", optOut)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "False", torporv1alpha1.HibernationUnsupportedFinding, []string{optedOut}})
	testenv.Eventually(t, "the account of the cluster is forgotten", func() error {
		return testenv.ErrorIf(len(e.metrics.sources.Load().accounts.CountCalls()) > 0, "the account is kept")
	})
	s.cloud.ResetCalls(t)
	s.cloud.StopInstance(t, s.ids[0])
	t.Run("machine stopped by its owner stays off", func(t *testing.T) {
		s.touchAnnotation(t, 1)
		s.expectOptedOut(t, "Running", hivev1.RunningHibernationReason)
	})
	t.Run("hibernation of an opted-out cluster is unsupported", func(t *testing.T) {
		s.setPowerState(t, hivev1.PowerStateHibernating)
		s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{optedOut}})
		s.expectOptedOut(t, "Unsupported", hivev1.UnsupportedHibernationReason)
	})
	t.Run("no machine was started, stopped or listed", func(t *testing.T) {
		calls := s.cloud.CountCalls(t)
		if n := calls["StopInstances"] - 1 + calls["StartInstances"] + calls["DescribeInstances"]; n != 0 {
			t.Errorf("expected no calls but the owner's stop, found %v", calls)
		}
	})
	t.Run("cluster hibernates after an opt-in", func(t *testing.T) {
		s.patch(t, "alice", optIn)
		s.awaitSettled(t, hivev1.PowerStateHibernating)
	})
	t.Run("hibernating cluster that opts out is not changed", func(t *testing.T) {
		s.patch(t, "alice", optOut)
		s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{optedOut}})
		s.setPowerState(t, hivev1.PowerStateRunning)
		s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.RunningHibernationReason, []string{optedOut}})
		s.expectOptedOut(t, "Running", hivev1.RunningHibernationReason)
		if err := s.cloud.ExpectState(t, s.infraID, "stopped"); err != nil {
			t.Error(err)
		}
		s.patch(t, "alice", optIn)
		testenv.Eventually(t, "the machines are started", func() error { return s.cloud.ExpectState(t, s.infraID, "running") })
		s.awaitSettled(t, hivev1.PowerStateRunning)
	})
}

// TestInfraDisabledNeedsNoPlatform uses clusters without a known cloud.
func TestInfraDisabledNeedsNoPlatform(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	t.Run("rows", func(t *testing.T) {
		for name, row := range map[string]struct {
			edit  func(*clusterSetup)
			ready expectedCondition
		}{
			"cluster without infraID and platform runs": {
				func(r *clusterSetup) { r.cd.Spec.ClusterMetadata.InfraID, r.cd.Spec.Platform.AWS = "", nil },
				expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, []string{"The API server answers"}},
			},
			"cluster without kubeconfig is invalid": {
				func(r *clusterSetup) { r.cd.Spec.ClusterMetadata = nil },
				expectedCondition{hivev1.ClusterReadyCondition, "Unknown", hivev1.InvalidSpecReason, []string{"spec.clusterMetadata.adminKubeconfigSecretRef.name"}},
			},
			"cluster with an unresponsive API server is unreachable": {
				func(r *clusterSetup) { r.kubeconfig = e.kubeconfigWithServer(t, "https://127.0.0.1:1") },
				expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.APIUnreachableReason, []string{"refused"}},
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := e.newCluster(t, func(r *clusterSetup) {
					r.machines, r.cd.Annotations = 0, map[string]string{optedOut: "true"}
					r.cd.Spec.PowerState = hivev1.PowerStateHibernating
					row.edit(r)
				})
				s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{optedOut}})
				s.awaitCondition(t, row.ready)
				s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "False", torporv1alpha1.HibernationUnsupportedFinding, []string{optedOut}})
			})
		}
	})
	if calls := e.cloud.CountCalls(t); len(calls) > 0 {
		t.Errorf("expected no calls of the cloud, found %v", calls)
	}
}

// expectOptedOut waits for the report of the newest change. The report does not describe machines.
func (s *testCluster) expectOptedOut(t *testing.T, powerState, reason string) {
	t.Helper()
	testenv.Eventually(t, "the power state is "+powerState, func() error {
		cd := s.get(t)
		if cd.Status.PowerState != powerState || cd.Status.ObservedGeneration < s.desiredGeneration {
			return errors.New("found " + cd.Status.PowerState)
		}
		hibernating := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
		ready := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition)
		if hibernating.Reason != reason || ready.Status != "True" || ready.Message != "The API server answers" {
			return errors.New("found " + hibernating.Reason + ", " + ready.Message)
		}
		for _, c := range cd.Status.Conditions {
			for _, claim := range []string{"machines run", "machines are", "machine is stopped", "machines stop", "is being stopped", "should run", "cluster runs"} {
				if strings.Contains(c.Message, claim) {
					return errors.New(c.Type + " makes a claim about machines: " + c.Message)
				}
			}
		}
		return nil
	})
}
