// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// hashLength is the length of the hash of namespaces in the name of a Lease.
const hashLength = 8

// NamePart returns the name of the Lease of a part. Each set of namespaces has a Lease of its own.
func NamePart(part string, namespaces []string) string {
	name := "torpor-" + part
	if len(namespaces) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(strings.Join(sortSet(namespaces), ",")))
	return name + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// FindPod returns the name of the Pod in the identity of a holder, which is POD_UUID.
func FindPod(identity string) string {
	pod, _, _ := strings.Cut(identity, "_")
	return pod
}

// Leader is the manager that holds the Lease of a part, or that held it last.
type Leader struct {
	// Part is the name of the part, and Lease the name of the Lease.
	Part, Lease string
	// Pod is the name of the Pod; empty after the Lease was released.
	Pod string
	// Since is the time of the acquisition.
	Since time.Time
	// Acts is true after the manager has started the controllers.
	Acts bool
	// Scope describes the controllers of the part and the namespaces; nil if unknown.
	Scope *Scope
	// EndedAt is the time at which the Lease expired without a renewal; zero if it is held, or if this is uncertain.
	EndedAt time.Time
}

// ReadLeader returns the manager according to the Lease of a part.
func ReadLeader(l *coordinationv1.Lease, now time.Time) Leader {
	acting := Read(l, now)
	leader := Leader{
		Part: l.Labels[torporv1alpha1.PartLabel], Lease: l.Name, Scope: readScope(l.Annotations), EndedAt: acting.EndedAt,
		Acts: isMarkedActing(l),
	}
	if l.Spec.HolderIdentity != nil {
		leader.Pod = FindPod(*l.Spec.HolderIdentity)
	}
	if l.Spec.AcquireTime != nil {
		leader.Since = l.Spec.AcquireTime.Time
	}
	return leader
}

// isMarkedActing reports whether the holder of the Lease of a part has started the controllers.
func isMarkedActing(l *coordinationv1.Lease) bool {
	return l.Annotations[torporv1alpha1.ManagerActsAnnotation] == "true"
}

// ReadLeaders returns the managers that hold the Leases of parts, or did not release them, sorted by part and Lease.
func ReadLeaders(all []coordinationv1.Lease, now time.Time) []Leader {
	var leaders []Leader
	for i := range all {
		if l := ReadLeader(&all[i], now); l.Part != "" && l.Pod != "" {
			leaders = append(leaders, l)
		}
	}
	slices.SortFunc(leaders, func(a, b Leader) int { return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Lease, b.Lease)) })
	return leaders
}

// Name returns the Deployment of the manager, or its Pod if the Deployment is unknown.
func (l Leader) Name() string {
	if l.Scope != nil && l.Scope.Deployment != "" {
		return l.Scope.Deployment
	}
	return l.Pod
}

// DescribeScope returns the controllers and the namespaces of the manager.
func (l Leader) DescribeScope() string {
	if l.Scope == nil {
		return "unknown controllers"
	}
	return l.Scope.String()
}

// DescribeSplit describes the difference between the scope of the manager that leads a part and the scope of a manager
// that waits for the same Lease; empty if there is no difference. Two Pods of one Deployment may differ during a
// rollout. An unknown Deployment is assumed to be the same one.
func (l Leader) DescribeSplit(waiting Scope) string {
	if l.isSameDeployment(waiting) || l.Scope.handlesSame(waiting) {
		return ""
	}
	return fmt.Sprintf("expected one Deployment with all controllers of the part %s, found that %s leads with %s, and that this replica of %s waits with %s; "+
		"run all controllers of the part in one Deployment", l.Part, l.Scope.Deployment, l.Scope, waiting.Deployment, waiting)
}

// DescribeOverlap describes the conflict between the manager that leads a part and a manager with a common namespace
// that waits for it; empty for two Pods of one Deployment.
func (l Leader) DescribeOverlap(waiting Scope) string {
	if l.isSameDeployment(waiting) {
		return ""
	}
	return fmt.Sprintf("expected Deployments with different namespaces to lead the part %s, found that %s leads with %s, and that this replica of %s waits with %s; "+
		"remove the common namespaces from --watch-namespaces of one Deployment, or delete one Deployment", l.Part, l.Name(), l.Scope, waiting.Deployment, waiting)
}

func (l Leader) isSameDeployment(waiting Scope) bool {
	return l.Scope == nil || l.Scope.Deployment == "" || waiting.Deployment == "" || l.Scope.Deployment == waiting.Deployment
}
