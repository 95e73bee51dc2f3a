// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"maps"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// youngAge is the age at which OpenShift has replaced the first signer of its kubelets' certificates.
	youngAge = 24 * time.Hour
	// openShiftNamespace exists only on OpenShift.
	openShiftNamespace = "openshift-cluster-version"
	// maxMissedStarts is how many starts a CronJob may miss before its controller reports TooManyMissedTimes.
	maxMissedStarts = 100
	// maxScheduleBytes limits the length of a schedule that is parsed.
	maxScheduleBytes = 256
	// goodQuorum is the minimum number of etcd members with which etcd survives the loss of one member.
	goodQuorum = 3
)

// addNamespace records the labels of namespaces that webhooks may select, the age of the cluster and whether it runs
// OpenShift. It also finds namespaces that are being deleted.
func addNamespace(s *Survey, item []byte) error {
	var n struct {
		Metadata objectName `json:"metadata"`
	}
	if err := decode(item, &n); err != nil {
		return err
	}
	if _, isWanted := s.namespaces[n.Metadata.Name]; isWanted {
		s.namespaces[n.Metadata.Name] = maps.Clone(n.Metadata.Labels)
		if n.Metadata.Labels == nil {
			s.namespaces[n.Metadata.Name] = map[string]string{}
		}
	}
	switch n.Metadata.Name {
	case systemNamespace:
		s.bornAt = n.Metadata.CreationTimestamp.Time
	case openShiftNamespace:
		s.isOpenShift = true
	}
	if n.Metadata.DeletionTimestamp != nil {
		s.note(torporv1alpha1.FinalizersPendingFinding, n.Metadata.Name, 0)
	}
	return nil
}

// addBudget finds PodDisruptionBudgets that allow no eviction.
func addBudget(s *Survey, item []byte) error {
	var b struct {
		Metadata objectName `json:"metadata"`
		Status   struct {
			DisruptionsAllowed int32 `json:"disruptionsAllowed"`
			ExpectedPods       int32 `json:"expectedPods"`
		} `json:"status"`
	}
	if err := decode(item, &b); err != nil {
		return err
	}
	if b.Status.ExpectedPods > 0 && b.Status.DisruptionsAllowed == 0 {
		s.note(torporv1alpha1.EvictionForbiddenFinding, b.Metadata.String(), 0)
	}
	return nil
}

// addCronJob finds CronJobs that would miss more than maxMissedStarts starts in a long stop.
func addCronJob(s *Survey, item []byte) error {
	var j struct {
		Metadata objectName `json:"metadata"`
		Spec     struct {
			Schedule                string `json:"schedule"`
			Suspend                 bool   `json:"suspend"`
			StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds"`
		} `json:"spec"`
	}
	if err := decode(item, &j); err != nil {
		return err
	}
	after := missedStartsAfter(j.Spec.Schedule)
	if after > 0 && !j.Spec.Suspend && !isBoundedBy(j.Spec.StartingDeadlineSeconds, after) {
		s.note(torporv1alpha1.CronJobsMissStartsFinding, j.Metadata.String(), after)
	}
	return nil
}

// JudgeSchedule returns a finding if a CronJob would miss more than maxMissedStarts starts in a stop. deadline is
// its starting deadline in seconds; nil if it has none.
func JudgeSchedule(name, schedule string, deadline *int64, r PlanRequest) []Finding {
	if after := missedStartsAfter(schedule); after > 0 && r.Stop().length() >= after && !isBoundedBy(deadline, after) {
		return []Finding{NewFinding(torporv1alpha1.CronJobsMissStartsFinding, 1, name)}
	}
	return nil
}

// isBoundedBy reports whether a starting deadline prevents a CronJob from missing too many starts, because only
// starts within the deadline count.
func isBoundedBy(deadline *int64, after time.Duration) bool {
	return deadline != nil && *deadline < int64(after/time.Second)
}

// missedStartsAfter returns the length of a stop after which a schedule has missed too many starts; 0 if it never
// does. It counts from a fixed Monday, so that the result does not depend on the current time.
func missedStartsAfter(schedule string) time.Duration {
	if len(schedule) > maxScheduleBytes {
		return 0
	}
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return 0
	}
	monday := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	at := monday
	for range maxMissedStarts + 1 {
		if at = parsed.Next(at); at.IsZero() {
			return 0
		}
	}
	return at.Sub(monday)
}

// addVolume finds volumes that are stored on the disk of a machine.
func addVolume(s *Survey, item []byte) error {
	var v struct {
		Metadata objectName `json:"metadata"`
		Spec     struct {
			Local    *struct{} `json:"local"`
			HostPath *struct{} `json:"hostPath"`
			ClaimRef *struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"claimRef"`
		} `json:"spec"`
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	if err := decode(item, &v); err != nil {
		return err
	}
	isLocal := v.Spec.Local != nil || v.Spec.HostPath != nil
	if isLocal && v.Status.Phase == "Bound" && v.Spec.ClaimRef != nil {
		s.note(torporv1alpha1.VolumesLocalFinding, v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name, 0)
	}
	return nil
}

// addAttachment finds volumes that could not be detached.
func addAttachment(s *Survey, item []byte) error {
	var a struct {
		Metadata objectName `json:"metadata"`
		Status   struct {
			DetachError *struct{} `json:"detachError"`
		} `json:"status"`
	}
	if err := decode(item, &a); err != nil {
		return err
	}
	if a.Status.DetachError != nil {
		s.note(torporv1alpha1.VolumesNotDetachableFinding, a.Metadata.Name, 0)
	}
	return nil
}

// addControlPlaneNode counts nodes of the control plane. Older and newer clusters use different labels for
// them.
func addControlPlaneNode(s *Survey, item []byte) error {
	var n struct {
		Metadata objectName `json:"metadata"`
	}
	if err := decode(item, &n); err != nil {
		return err
	}
	if len(s.controlPlane) < goodQuorum {
		s.controlPlane[n.Metadata.Name] = true
	}
	return nil
}

// judgeControlPlane adds a finding if the control plane has too few nodes to survive the loss of one. A control plane
// outside the cluster has no nodes, and causes no finding.
func (s *Survey) judgeControlPlane() {
	if len(s.controlPlane) >= goodQuorum {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.controlPlane)) {
		s.note(torporv1alpha1.EtcdQuorumSmallFinding, name, 0)
	}
}
