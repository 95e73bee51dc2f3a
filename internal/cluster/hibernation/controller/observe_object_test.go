// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func fixedTime() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// managedFieldsOf returns one entry of an object's managed fields.
func managedFieldsOf(name string, at time.Time, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: name, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestObserveObject(t *testing.T) {
	const power = `{"f:spec":{"f:powerState":{}}}`
	for name, row := range map[string]struct {
		edit func(*hivev1.ClusterDeployment)
		want func(*hibernation.Observed)
	}{
		"complete cluster has no missing part": {func(*hivev1.ClusterDeployment) {}, func(*hibernation.Observed) {}},
		"spec.powerState is observed": {
			func(cd *hivev1.ClusterDeployment) { cd.Spec.PowerState = hivev1.PowerStateHibernating },
			func(o *hibernation.Observed) {
				o.SpecPowerState, o.DesiredPowerState = hivev1.PowerStateHibernating, hivev1.PowerStateHibernating
				o.RequestedBy, o.RequestedAt = "unknown", fixedTime()
				o.Stops = stoprecord.Records{{Since: metav1.NewTime(fixedTime()), By: "unknown", Requested: true}}
			},
		},
		"run time starts at the claim of the cluster": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Spec.HibernateAfter, cd.Spec.PowerState = "1h30m", hivev1.PowerStateRunning
				cd.CreationTimestamp = metav1.NewTime(fixedTime().Add(-5 * time.Hour))
				cd.Status.InstalledTimestamp = new(metav1.NewTime(fixedTime().Add(-4 * time.Hour)))
				cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{ClaimName: "mine", ClaimedTimestamp: new(metav1.NewTime(fixedTime().Add(-2 * time.Hour)))}
			},
			func(o *hibernation.Observed) {
				o.SpecPowerState, o.DesiredPowerState = hivev1.PowerStateRunning, hivev1.PowerStateHibernating
				o.Timer = hibernation.RunTimer{Limit: 90 * time.Minute, Since: fixedTime().Add(-2 * time.Hour)}
			},
		},
		"run time without an installation time starts at the creation of the cluster": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Spec.HibernateAfter, cd.CreationTimestamp = "8h", metav1.NewTime(fixedTime().Add(-time.Hour))
			},
			func(o *hibernation.Observed) {
				o.Timer = hibernation.RunTimer{Limit: 8 * time.Hour, Since: fixedTime().Add(-time.Hour)}
			},
		},
		"request to resume restarts the run time": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Spec.HibernateAfter, cd.CreationTimestamp = "8h", metav1.NewTime(fixedTime().Add(-9*time.Hour))
				cd.Annotations = map[string]string{hivev1.ResumeRequestedAtAnnotation: "2026-07-01T11:00:00Z"}
			},
			func(o *hibernation.Observed) {
				asked := fixedTime().Add(-time.Hour)
				o.Timer = hibernation.RunTimer{Limit: 8 * time.Hour, Since: asked, ResumeRequestedAt: asked}
			},
		},
		"unclaimed cluster of a pool has no run time limit": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Spec.HibernateAfter, cd.CreationTimestamp = "1h", metav1.NewTime(fixedTime().Add(-9*time.Hour))
				cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "spare"}
			},
			func(*hibernation.Observed) {},
		},
		"malformed hibernateAfter is reported": {
			func(cd *hivev1.ClusterDeployment) { cd.Spec.HibernateAfter = "9999999999999h" },
			func(o *hibernation.Observed) {
				o.Invalid = `Expected spec.hibernateAfter to be a duration such as 8h, found "9999999999999h"; correct or remove it`
			},
		},
		"request to resume at a malformed time is reported": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Spec.HibernateAfter, cd.Annotations = "8h", map[string]string{hivev1.ResumeRequestedAtAnnotation: "now"}
			},
			func(o *hibernation.Observed) {
				o.Invalid = `Expected the annotation torpor.dev/resume-requested-at to be a time such as 2026-07-01T08:00:00Z, found "now"; correct or remove it`
			},
		},
		"deletion timestamp is observed": {
			func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = new(metav1.NewTime(fixedTime())) },
			func(o *hibernation.Observed) { o.Deleted = true },
		},
		"pause annotation with the value T is observed": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Annotations = map[string]string{hivev1.PowerStatePauseAnnotation: "T"}
			},
			func(o *hibernation.Observed) { o.Paused = true },
		},
		"pause annotation with a false or malformed value is ignored": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Annotations = map[string]string{hivev1.PowerStatePauseAnnotation: "false", hivev1.ReconcilePauseAnnotation: "maybe"}
			},
			func(*hibernation.Observed) {},
		},
		"running version has precedence over the label, and the label over the installed version": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Status.ClusterVersionStatus = &hivev1.ClusterVersionStatus{Desired: hivev1.Release{Version: "4.4.7"}}
				cd.Status.InstallVersion = new("4.1.0")
			},
			func(o *hibernation.Observed) {
				o.Incompatible = "Expected OpenShift 4.4.8 or later, found 4.4.7; upgrade the cluster to hibernate it"
			},
		},
		"installed version is used if no other version is known": {
			func(cd *hivev1.ClusterDeployment) { cd.Labels, cd.Status.InstallVersion = nil, new("4.12.0") },
			func(*hibernation.Observed) {},
		},
		"version-major-minor-patch label is used if no other version is known": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Labels = map[string]string{hivev1.VersionMajorMinorPatchLabel: "4.12.0"}
			},
			func(*hibernation.Observed) {},
		},
		"last writer of spec.powerState is the requester, even if another user wrote the object later": {
			func(cd *hivev1.ClusterDeployment) {
				cd.ManagedFields = []metav1.ManagedFieldsEntry{
					managedFieldsOf("old", fixedTime(), power), managedFieldsOf("alice", fixedTime().Add(time.Hour), power),
					managedFieldsOf("status-writer", fixedTime().Add(2*time.Hour), `{"f:status":{"f:powerState":{}}}`),
					managedFieldsOf("broken", fixedTime().Add(3*time.Hour), `{{{`),
					{Manager: "empty"},
				}
			},
			func(o *hibernation.Observed) { o.RequestedBy, o.RequestedAt = "alice", fixedTime().Add(time.Hour) },
		},
		"hibernation record of the status is copied": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Status.Hibernation = &hivev1.HibernationRecord{RequestedBy: "bob", Nodes: []hivev1.RecordedNode{{Name: "n"}}}
			},
			func(o *hibernation.Observed) {
				o.Record = &hivev1.HibernationRecord{RequestedBy: "bob", Nodes: []hivev1.RecordedNode{{Name: "n"}}}
			},
		},
		"invalid IP override is reported": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Spec.ControlPlaneConfig = &hivev1.ControlPlaneConfig{APIServerIPOverride: "10.0.0.256"}
			},
			func(o *hibernation.Observed) {
				o.Invalid = `Torpor does not connect to the API server: expected spec.controlPlaneConfig.apiServerIPOverride to be an IP address, found "10.0.0.256"; correct or remove it`
			},
		},
		"infra-disabled annotation is an opt-out": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Annotations = map[string]string{hivev1.InfraDisabledAnnotation: "true"}
				cd.Spec.Platform, cd.Spec.ClusterMetadata.InfraID = hivev1.Platform{}, ""
			},
			func(o *hibernation.Observed) {
				o.IsInfraDisabled = true
				o.NoActuator = `The annotation hive.openshift.io/infra-disabled is "true", so Torpor neither lists, starts nor stops machines; remove the annotation to make spec.powerState effective`
			},
		},
		"infra-disabled annotation of a cluster without kubeconfig is an opt-out": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Annotations, cd.Spec.ClusterMetadata = map[string]string{hivev1.InfraDisabledAnnotation: "1"}, nil
			},
			func(o *hibernation.Observed) {
				o.IsInfraDisabled = true
				o.NoActuator = `The annotation hive.openshift.io/infra-disabled is "1", so Torpor neither lists, starts nor stops machines; remove the annotation to make spec.powerState effective`
				o.Invalid = "Expected spec.clusterMetadata.adminKubeconfigSecretRef.name to be set, found it empty; set it so that the cluster's API server can be found"
			},
		},
		"infra-disabled annotation with the value false is ignored": {
			func(cd *hivev1.ClusterDeployment) {
				cd.Annotations = map[string]string{hivev1.InfraDisabledAnnotation: "false"}
			},
			func(*hibernation.Observed) {},
		},
		"missing parts of an empty ClusterDeployment are all reported": {
			func(cd *hivev1.ClusterDeployment) { *cd = hivev1.ClusterDeployment{} },
			func(o *hibernation.Observed) {
				o.Installed = false
				o.Invalid = "Expected spec.clusterMetadata.infraID, spec.clusterMetadata.adminKubeconfigSecretRef.name to be set, " +
					"found it empty; set it so that the cluster's machines can be found"
				o.NoActuator = "Expected one of the platforms aws, azure under spec.platform, found another platform, which cannot be hibernated"
				o.Incompatible = "No version of the cluster is known; expected OpenShift 4.4.8 or later in " +
					"status.clusterVersionStatus.desired.version or in the version label"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Controller{
				Clock:     clocktesting.NewFakePassiveClock(fixedTime()),
				Actuators: map[string]actuator.Actuator{"azure": nil, "aws": nil},
			}
			s := &testCluster{key: client.ObjectKey{Namespace: "n", Name: "c"}, infraID: "x"}
			cd := s.buildClusterDeployment()
			row.edit(cd)
			want := hibernation.Observed{Now: fixedTime(), Installed: true}
			row.want(&want)
			got := c.observeObject(cd, readFacts(cd))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if got.Record != nil && got.Record == cd.Status.Hibernation {
				t.Error("the record is the object's own")
			}
		})
	}
}

// storedCluster is a client that returns one ClusterDeployment.
type storedCluster struct {
	client.Reader
	cd *hivev1.ClusterDeployment
}

func (r storedCluster) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	cd, ok := obj.(*hivev1.ClusterDeployment)
	if !ok {
		return fmt.Errorf("expected a ClusterDeployment to be asked for, found %T", obj)
	}
	r.cd.DeepCopyInto(cd)
	return nil
}

// With Hive's schema, only the annotation contains the record of a resume.
func TestOrderToStopIsHeldBackByTheRememberedRecord(t *testing.T) {
	for name, row := range map[string]struct {
		resumedAt time.Time
		want      bool
	}{
		"cluster that was resumed a minute ago keeps running":              {fixedTime().Add(-time.Minute), false},
		"cluster with an elapsed run time after the resume may be stopped": {fixedTime().Add(-2 * time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testCluster{key: client.ObjectKey{Namespace: "n", Name: "c"}, infraID: "x"}
			cd := s.buildClusterDeployment()
			cd.Spec.HibernateAfter, cd.CreationTimestamp = "1h", metav1.NewTime(fixedTime().Add(-9*time.Hour))
			cd.Annotations = map[string]string{statusannotation.KeyOf(Name): fmt.Sprintf(`{"hibernation":{"sleepStartedAt":%[1]q,"resumeStartedAt":%[1]q,"resumedAt":%[1]q}}`, row.resumedAt.Format(time.RFC3339))}
			c := Controller{Clock: clocktesting.NewFakePassiveClock(fixedTime()), Actuators: map[string]actuator.Actuator{"aws": nil}, live: storedCluster{cd: cd}}
			if got, err := c.mayStop(t.Context(), s.key); err != nil || got != row.want {
				t.Errorf("expected %t, found %t (%v)", row.want, got, err)
			}
		})
	}
}

func TestCloudErrorsHideSecrets(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want hibernation.ObservationError
	}{
		"actuator error is shown with advice": {
			&actuator.Error{Class: actuator.Throttled, Message: "slow down"},
			hibernation.ObservationError{Class: actuator.Throttled, Message: "slow down; Torpor retries the request automatically"},
		},
		"timeout is reported as unreachable": {
			context.DeadlineExceeded,
			hibernation.ObservationError{Class: actuator.Unreachable, Message: "The cloud did not respond in time"},
		},
		"error from another source is not shown": {
			errors.New("password is hunter2"),
			hibernation.ObservationError{Class: actuator.Other, Message: "The request to the cloud failed with an unknown error"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, *explainCloudError(fmt.Errorf("call: %w", row.err))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
