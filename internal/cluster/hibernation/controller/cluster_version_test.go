// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAnUpgradeOfTheClusterIsNoticed upgrades an OpenShift cluster that is too old to hibernate. Nothing changes on
// the hub.
func TestAnUpgradeOfTheClusterIsNoticed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.InstallCRDs(t, "testdata/openshift-version.yaml")
	version := &unstructured.Unstructured{}
	version.SetGroupVersionKind(schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"})
	version.SetName("version")
	setVersion := func(v string) {
		testenv.ExpectNoError(t, unstructured.SetNestedField(version.Object, v, "status", "desired", "version"))
	}
	setVersion("4.4.7")
	e.ExpectCreated(t, version)
	e.startManager(t, clouds())
	// The outdated label contains another version.
	s := e.newCluster(t, func(r *clusterSetup) { r.cd.Labels[hivev1.VersionLabel] = "4.16.3" })
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.UnsupportedHibernationReason, []string{"found 4.4.7; upgrade the cluster"}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, nil})
	testenv.ExpectEqual(t, "status.clusterVersionStatus.desired.version", "4.4.7", s.get(t).Status.ClusterVersionStatus.Desired.Version)
	if err := s.cloud.ExpectState(t, s.infraID, "running"); err != nil {
		t.Error(err)
	}

	setVersion("4.4.8")
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), version))
	s.touchAnnotation(t, 1) // Otherwise the next poll would run up to ten minutes later.
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	testenv.ExpectEqual(t, "status.clusterVersionStatus.desired.version", "4.4.8", s.get(t).Status.ClusterVersionStatus.Desired.Version)
}
