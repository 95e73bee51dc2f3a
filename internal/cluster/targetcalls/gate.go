// SPDX-License-Identifier: Apache-2.0

// Package targetcalls runs jobs that send requests to clusters. The jobs run outside of reconcile passes, so a pass
// never waits for a cluster. A job runs only while the cluster may be dialled, which is checked before each request.
// The interval between attempts grows while a job fails.
//
// Reading order: gate.go (may the cluster be dialled) → connector.go (one connection) → runner.go (scheduling of
// jobs).
package targetcalls

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// Gate decides whether and how a cluster is dialled, and identifies its last resume. Gates are comparable.
type Gate struct {
	MayDial, IsPaused, IsDeleted bool
	// Server identifies the API server to dial.
	Server Server
	// resume is the Unix time at which the last resume began; 0 if there was none.
	resume int64
	// isReachable is true if the cluster responds. It is part of the comparison, so the gate changes when a cluster
	// resumes because its stop has expired.
	isReachable bool
}

// ReadGate returns the gate of a cluster. pauses are the annotations that pause the cluster.
func ReadGate(cd *hivev1.ClusterDeployment, now time.Time, pauses ...string) Gate {
	if statusannotation.IsIn(cd) {
		// Hive's CRD drops the status fields that show whether the cluster is stopped.
		cd = cd.DeepCopy()
		statusannotation.RestoreStatus(cd)
	}
	gate := Gate{MayDial: hibernation.MayDial(cd, now), IsPaused: isPaused(cd, pauses), IsDeleted: !cd.DeletionTimestamp.IsZero()}
	gate.Server.Override = hibernation.ReadServerOverride(cd)
	gate.isReachable = meta.IsStatusConditionFalse(cd.Status.Conditions, hivev1.ClusterUnreachableCondition)
	if cd.Spec.ClusterMetadata != nil {
		gate.Server.KubeconfigSecret = cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name
	}
	if h := cd.Status.Hibernation; h != nil && h.ResumeStartedAt != nil {
		gate.resume = h.ResumeStartedAt.Unix()
	}
	return gate
}

// Resume returns when the last resume of the cluster began; nil if no resume is recorded.
func (g Gate) Resume() *metav1.Time {
	if g.resume == 0 {
		return nil
	}
	return new(metav1.Unix(g.resume, 0))
}

func isPaused(cd *hivev1.ClusterDeployment, annotations []string) bool {
	return slices.ContainsFunc(annotations, cd.HasTrueAnnotation)
}
