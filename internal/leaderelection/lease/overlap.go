// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Contender is the Lease of a part, as far as the decision between managers with common namespaces depends on it.
type Contender struct {
	// Name is the name of the Lease, which is unique.
	Name string
	// Namespaces are the only namespaces of the holder; empty means all.
	Namespaces []string
	// AcquiredAt is the time of the acquisition by the holder's clock. It only decides between managers that start at
	// the same time, so that clocks may differ.
	AcquiredAt time.Time
	// Acts is true after the holder has started the controllers of the part.
	Acts bool
}

// Verdict defines how the holder of a Lease continues.
type Verdict int8

// The verdicts of DecideOverlap.
const (
	Act   Verdict = iota // Act starts the controllers.
	Wait                 // Wait keeps the Lease, and decides again after the next read.
	Yield                // Yield releases the Lease.
)

// DecideOverlap decides whether the holder of a Lease may act. held are the Leases of the same part that the holder has
// read after it acquired its own Lease, except expired ones. It also returns the first overlapping Lease, or nil.
//
// Invariant: two managers with a common namespace never both act. Each of them writes its own Lease (W) before it reads
// the others (R), and a Lease remains held while its holder acts. The manager with the later W finds the other Lease in
// its R, and does not act while that Lease is held. TestOverlapModel checks this.
//
// If both managers read each other's Lease, the manager with the later acquisition releases its Lease. A manager that
// acts does not decide again, so its Lease precedes all others.
func DecideOverlap(own Contender, held []Contender) (Verdict, *Contender) {
	var first *Contender
	for i := range held {
		if other := &held[i]; own.overlaps(*other) && (first == nil || other.compare(*first) < 0) {
			first = other
		}
	}
	switch {
	case first == nil:
		return Act, nil
	case first.compare(own) < 0:
		return Yield, first
	default:
		return Wait, first
	}
}

// compare orders contenders: those that act precede the others, and earlier acquisitions precede later ones.
func (c Contender) compare(other Contender) int {
	if c.Acts != other.Acts {
		if c.Acts {
			return -1
		}
		return 1
	}
	return cmp.Or(c.AcquiredAt.Compare(other.AcquiredAt), strings.Compare(c.Name, other.Name))
}

// overlaps reports whether the Leases differ and their holders handle a common namespace.
func (c Contender) overlaps(other Contender) bool {
	return c.Name != other.Name && (len(c.Namespaces) == 0 || len(other.Namespaces) == 0 ||
		slices.ContainsFunc(c.Namespaces, func(namespace string) bool { return slices.Contains(other.Namespaces, namespace) }))
}

// NewContender returns the contender of a Lease. If the namespaces are unknown, they are assumed to be all.
func NewContender(l *coordinationv1.Lease) Contender {
	c := Contender{Name: l.Name, Acts: isMarkedActing(l)}
	if scope := readScope(l.Annotations); scope != nil {
		c.Namespaces = scope.Namespaces
	}
	if l.Spec.AcquireTime != nil {
		c.AcquiredAt = l.Spec.AcquireTime.Time
	}
	return c
}

// Sightings records when the Leases of other managers last changed, by the clock of this manager. As in client-go, a
// Lease has expired if it has not changed for its duration, so that the clocks of managers may differ.
type Sightings map[string]sighting

type sighting struct {
	renewal string
	at      time.Time
}

// IsHeld records a Lease, and reports whether it is held. A Lease that ended long before now has expired, even if this
// manager reads it for the first time.
func (s Sightings) IsHeld(l *coordinationv1.Lease, now time.Time) bool {
	spec := l.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return false
	}
	if acting := Read(l, now); !acting.EndedAt.IsZero() {
		return false
	}
	renewal := *spec.HolderIdentity + " " + spec.RenewTime.String()
	last, found := s[l.Name]
	if !found || last.renewal != renewal {
		last = sighting{renewal, now}
		s[l.Name] = last
	}
	return now.Before(last.at.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second))
}
