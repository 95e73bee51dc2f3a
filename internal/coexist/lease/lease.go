// SPDX-License-Identifier: Apache-2.0

// Package lease reads and writes the Lease kube-system/torpor. The active installation holds this Lease, and records
// its scope in the Lease.
package lease

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These are the name and namespace of the Lease of the active installation. Its holder identity is the namespace of
// that installation.
const (
	Namespace = metav1.NamespaceSystem
	Name      = "torpor"
)

// clockMargin is the time after the end of a Lease at which its expiry is reported. It allows for a difference between
// the clocks of the reader and the manager.
const clockMargin = 5 * time.Minute

// Acting describes the active manager, as recorded by the Lease. The zero value means that nothing is known.
type Acting struct {
	// Installation is the namespace of the installation that holds the Lease; empty if no installation holds it.
	Installation string
	// Scope describes what the manager handles; nil if unknown.
	Scope *Scope
	// EndedAt is the time at which the Lease expired without a renewal; zero if the Lease is held, or if the expiry is
	// uncertain.
	EndedAt time.Time
}

// Read returns the active manager according to the Lease. Without a Lease, nothing is known, because a manager without
// --leader-elect does not write one.
func Read(l *coordinationv1.Lease, now time.Time) Acting {
	s := l.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return Acting{}
	}
	end := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
	switch {
	case now.Before(end):
		return Acting{Installation: *s.HolderIdentity, Scope: readScope(l.Annotations)}
	case now.After(end.Add(clockMargin)):
		return Acting{EndedAt: end}
	default:
		return Acting{}
	}
}

// DescribeEnd returns a message that the Lease has expired; empty if the Lease is held, or if this is unknown.
func (a Acting) DescribeEnd() string {
	if a.EndedAt.IsZero() {
		return ""
	}
	return fmt.Sprintf("no manager has renewed the Lease %s/%s, which ended at %s; check whether the manager runs", Namespace, Name, a.EndedAt.UTC().Format(time.RFC3339))
}

// Take makes the installation the holder of the Lease for the duration.
func Take(l *coordinationv1.Lease, installation string, scope Scope, duration time.Duration, now time.Time) {
	s := &l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != installation {
		transitions := int32(1)
		if s.LeaseTransitions != nil {
			transitions += *s.LeaseTransitions
		}
		s.AcquireTime, s.LeaseTransitions = new(metav1.NewMicroTime(now)), &transitions
	}
	s.HolderIdentity, s.LeaseDurationSeconds = &installation, new(int32(duration.Seconds()))
	s.RenewTime = new(metav1.NewMicroTime(now))
	scope.write(l)
}
