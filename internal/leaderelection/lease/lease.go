// SPDX-License-Identifier: Apache-2.0

// Package lease reads and writes the Leases of an installation. The active installation holds the Lease
// kube-system/torpor. Each of its managers holds the Leases of the parts that it leads, and records its scope there.
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

// Acting describes the active installation, as recorded by its Leases. The zero value means that nothing is known.
type Acting struct {
	// Installation is the namespace of the installation that holds the Lease; empty if no installation holds it.
	Installation string
	// Leaders are the managers that lead the parts; empty if they are unknown.
	Leaders []Leader
	// Scope is the scope of a manager of an earlier release, which leads all parts; nil if there is none.
	Scope *Scope
	// EndedAt is the time at which the Lease expired without a renewal; zero if the Lease is held, or if the expiry is
	// uncertain.
	EndedAt time.Time
}

// endRemedy is the next step if a Lease has expired.
const endRemedy = "check whether the manager runs"

// Read returns the active installation according to the Lease, without the leaders of its parts. Without a Lease, nothing
// is known, because a manager without --leader-elect does not write one.
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

// FindManager returns the Deployment of a manager; empty if none is known.
func (a Acting) FindManager() string {
	if all := a.ListManagers(); len(all) > 0 {
		return all[0]
	}
	return ""
}

// ListManagers returns the Deployments of the managers, sorted and without duplicates.
func (a Acting) ListManagers() []string {
	return a.collect(func(s *Scope) string { return s.Deployment })
}

// ListVersions returns the versions of the managers, sorted and without duplicates.
func (a Acting) ListVersions() []string {
	return a.collect(func(s *Scope) string { return s.Version })
}

// collect returns a property of the managers that run, sorted and without duplicates.
func (a Acting) collect(property func(*Scope) string) []string {
	var found []string
	scopes, _ := a.listScopes()
	for _, s := range scopes {
		if s != nil && property(s) != "" {
			found = append(found, property(s))
		}
	}
	return sortSet(found)
}

// DescribeEnd returns a message that the Lease has expired; empty if the Lease is held, or if this is unknown.
func (a Acting) DescribeEnd() string {
	if a.EndedAt.IsZero() {
		return ""
	}
	return describeEnd(Namespace+"/"+Name, a.EndedAt) + "; " + endRemedy
}

func describeEnd(name string, at time.Time) string {
	return fmt.Sprintf("no manager has renewed the Lease %s, which ended at %s", name, at.UTC().Format(time.RFC3339))
}

// Take makes the installation the holder of the Lease for the duration. It removes the scope of a manager of an earlier
// release.
func Take(l *coordinationv1.Lease, installation string, duration time.Duration, now time.Time) {
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
	for _, name := range scopeAnnotations() {
		delete(l.Annotations, name)
	}
}
