// SPDX-License-Identifier: Apache-2.0

// Package clusterjobs does jobs at clusters beside the passes of controllers, which never wait for a cluster: only while the cluster may be
// dialled, which is asked before the connection and before each request, and with intervals that grow while a job fails.
//
// Reading order: gate.go (may the cluster be dialled) → connector.go (one connection) → runner.go (which job, and when).
package clusterjobs

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/statusannotation"
)

// Gate is what decides whether, how and for which resume a cluster is dialled. Gates can be compared.
type Gate struct {
	MayDial, IsPaused, IsDeleted bool
	// KubeconfigSecret is in the namespace of the cluster; empty if it is not known.
	KubeconfigSecret string
	// resume is when the last resume began, in seconds; 0 for none.
	resume int64
	// isReachable says that the cluster answers. Whoever compares gates at one time sees a cluster wake whose stop has expired since.
	isReachable bool
}

// ReadGate returns the gate of a cluster, which these annotations pause.
func ReadGate(cd *hivev1.ClusterDeployment, now time.Time, pauses ...string) Gate {
	if statusannotation.IsIn(cd) {
		// Upstream's schema drops what says whether the cluster is stopped.
		cd = cd.DeepCopy()
		statusannotation.RestoreStatus(cd)
	}
	gate := Gate{MayDial: hibernation.MayDial(cd, now), IsPaused: isPaused(cd, pauses), IsDeleted: !cd.DeletionTimestamp.IsZero()}
	gate.isReachable = meta.IsStatusConditionFalse(cd.Status.Conditions, hivev1.ClusterUnreachableCondition)
	if cd.Spec.ClusterMetadata != nil {
		gate.KubeconfigSecret = cd.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name
	}
	if h := cd.Status.Hibernation; h != nil && h.ResumeStartedAt != nil {
		gate.resume = h.ResumeStartedAt.Unix()
	}
	return gate
}

// Resume is when the last resume of the cluster began; nil if it never hibernated.
func (g Gate) Resume() *metav1.Time {
	if g.resume == 0 {
		return nil
	}
	return new(metav1.Unix(g.resume, 0))
}

func isPaused(cd *hivev1.ClusterDeployment, annotations []string) bool {
	for _, annotation := range annotations {
		if is, err := strconv.ParseBool(cd.Annotations[annotation]); err == nil && is {
			return true
		}
	}
	return false
}
