// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// refusesSecondOwner uses two ClusterDeployments of the same machines. The more recent one requests another power
// state.
func refusesSecondOwner(t *testing.T, e *env) {
	t.Helper()
	first := e.newCluster(t, nil)
	first.awaitSettled(t, hivev1.PowerStateRunning)
	created := first.get(t).CreationTimestamp
	testenv.Eventually(t, "the next object is younger, in whole seconds", func() error {
		return testenv.ErrorIf(time.Since(created.Time) < time.Second, "it has the same time")
	})
	second := e.newCluster(t, func(r *clusterSetup) {
		r.machines, r.cd.Spec.ClusterMetadata.InfraID, r.cd.Spec.PowerState = 0, first.infraID, hivev1.PowerStateHibernating
	})
	second.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "Unknown", hivev1.InvalidSpecReason, []string{first.key.String(), first.infraID}})
	if err := e.cloud.ExpectState(t, first.infraID, "running"); err != nil {
		t.Errorf("expected the machines to be left to the older one: %v", err)
	}
	if err := e.Client.Delete(t.Context(), first.get(t)); err != nil {
		t.Fatal(err)
	}
	second.ids, second.infraID = first.ids, first.infraID
	second.awaitSettled(t, hivev1.PowerStateHibernating)
}

// tellsAccountsApart uses two ClusterDeployments with the same infraID in different accounts. Neither cluster affects
// the other.
func tellsAccountsApart(t *testing.T, e *env) {
	t.Helper()
	first := e.newCluster(t, nil)
	first.awaitSettled(t, hivev1.PowerStateRunning)
	other := testenv.StartCloud(t)
	other.RunInstances(t, first.infraID, machines)
	second := e.newCluster(t, func(r *clusterSetup) {
		r.machines, r.cloud, r.cd.Spec.ClusterMetadata.InfraID, r.cd.Spec.PowerState = 0, other, first.infraID, hivev1.PowerStateHibernating
	})
	second.infraID = first.infraID
	second.awaitSettled(t, hivev1.PowerStateHibernating)
	first.awaitSettled(t, hivev1.PowerStateRunning)
}

// ignoresOwnersWithoutMachines uses an older ClusterDeployment with the infraID of another owner's cluster and with
// wrong credentials.
func ignoresOwnersWithoutMachines(t *testing.T, e *env) {
	t.Helper()
	const victim = "victim-x7k2p"
	e.newCluster(t, func(r *clusterSetup) {
		r.machines, r.cd.Spec.ClusterMetadata.InfraID, r.keys["aws_access_key_id"] = 0, victim, []byte(wrongKey)
	}).awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "Unknown", hivev1.CredentialsInvalidReason, nil})
	e.cloud.RunInstances(t, victim, machines)
	s := e.newCluster(t, func(r *clusterSetup) { r.machines, r.cd.Spec.ClusterMetadata.InfraID = 0, victim })
	s.infraID = victim
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
}

// asksForRightsFirst removes the right to start one of the machines, and expects that none is stopped.
func asksForRightsFirst(t *testing.T, e *env) {
	t.Helper()
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	e.cloud.InjectFault(t, testenv.CloudFault{Action: "StartInstances", InstanceIDs: s.ids[1:], Code: "UnauthorizedOperation", Message: "No."})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{
		hivev1.ClusterReadyCondition, "False", hivev1.FailedToStopReason, []string{"StartInstances: UnauthorizedOperation", "no machine is stopped"},
	})
	if err := e.cloud.ExpectState(t, s.infraID, "running"); err != nil {
		t.Errorf("expected no machine to be stopped: %v", err)
	}
}

// TestSharedMachinesAreFoundUnderDifferentCloudNames uses two ClusterDeployments of one cluster with different cloud
// names in clouds.yaml.
func TestSharedMachinesAreFoundUnderDifferentCloudNames(t *testing.T) {
	on := func(platform hivev1.Platform) []string {
		cd := &hivev1.ClusterDeployment{}
		cd.Spec.ClusterMetadata, cd.Spec.Platform = &hivev1.ClusterMetadata{InfraID: "sleepy-x7k2p"}, platform
		return machineTags(cd)
	}
	onOpenStack := func(cloud string) []string {
		return on(hivev1.Platform{OpenStack: &hivev1.OpenStackPlatform{CredentialsSecretRef: hivev1.LocalObjectReference{Name: "cloud"}, Cloud: cloud}})
	}
	if first, second := onOpenStack("openstack"), onOpenStack("fleet"); len(first) != 1 || !slices.Equal(first, second) {
		t.Errorf("expected the same machines to have one name, found %v and %v", first, second)
	}
	onEngine := func(engine string) []string {
		return on(hivev1.Platform{Containers: &hivev1.ContainersPlatform{Engine: engine, NamePrefix: "kind"}})
	}
	if first, second := onEngine("tcp://one:2376"), onEngine("tcp://two:2376"); len(first) != 1 || slices.Equal(first, second) {
		t.Errorf("expected the machines of two engines to have two names, found %v and %v", first, second)
	}
}
