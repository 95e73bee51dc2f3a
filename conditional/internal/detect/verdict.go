// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Presence describes whether a kind is served.
type Presence int8

// Presences have the same values as the states of a condition. Unclear means that the presence is unknown or
// unconfirmed, so it must not start or stop a group.
const (
	Unclear Presence = iota
	Absent
	Served
)

// Verdict is the detector's result for one kind.
type Verdict struct {
	Presence        Presence
	Reason, Message string
	// Identity changes when a Served kind is replaced with a different one. It depends on the version, scope and
	// plural, and on the UID of the CRD. It does not change when the UID becomes known or can no longer be read. It has
	// no other meaning.
	Identity string
	// Plural, Namespaced and UID describe a Served kind. UID is the UID of its CRD. It is empty if the kind has no CRD,
	// or if the CRD is not watched.
	Plural     string
	Namespaced bool
	UID        string
	// Terminating is true while the CRD of a Served kind is being deleted and waits for its last object.
	Terminating bool
	// Deleted is true for an Absent kind if a watch has observed the deletion of its CRD, and therefore of all objects.
	Deleted bool
}

// ReasonDetecting is the reason of the verdict before the first query.
const ReasonDetecting = "Detecting"

// lookResult is the result of one query of the API server.
type lookResult struct {
	outcome   lookOutcome
	version   string
	scope     string
	plural    string
	watchable bool

	crdKnown    bool   // crdKnown is true if a watch has listed the kind's CRD, or shown that it does not exist
	uid         string // uid is the UID of that CRD
	terminating bool

	mayBeDeleted bool // mayBeDeleted is true if the CRD may have been deleted while its watch was down

	err error // err is set with outcomeUnreadable
}

// lookOutcome is the label "result" of conditional_probes_total.
type lookOutcome string

const (
	outcomeUnreadable   lookOutcome = "unreadable"   // outcomeUnreadable means no usable response: 5xx, 429, time-out, 401, 403
	outcomeMissing      lookOutcome = "absent"       // outcomeMissing means that the group version or the kind is not served
	outcomeInitializing lookOutcome = "initializing" // outcomeInitializing means that the storage does not accept watches yet
	outcomePresent      lookOutcome = "served"
)

// outcomeCounts counts requests. The map itself never changes.
type outcomeCounts map[lookOutcome]*atomic.Uint64

// A server that lags behind, or two servers that disagree, must not stop a controller. A kind that disappears without
// the deletion of its CRD is absent only after several queries. A kind whose CRD is deleted may still be served for a
// few seconds.
const (
	missesNeeded = 3
	missesSpan   = 2 * time.Second
	// watchGrace is how long the absence of a kind stays unconfirmed while the watch of its CRD is down. The watch
	// reconnects within 20 s after the API server is available again, and then reports whether the CRD was deleted.
	// Only after such a report do the controllers reconcile the last deletions of the kind's objects.
	watchGrace    = 30 * time.Second
	deletionGrace = 10 * time.Second
	// initializingTimeout is how long to wait for the storage of a new kind. Storage that needs a conversion webhook is
	// not ready while the webhook is down. After the timeout the group starts nevertheless, and reports why its kind
	// cannot be listed.
	initializingTimeout = 10 * time.Second
)

// kindHistory is the input for a verdict about one kind, in addition to the last query.
type kindHistory struct {
	identity          string      // identity is taken from the last Served verdict; empty if the kind is absent or was never served
	lastSeen          *lookResult // lastSeen is nil while the identity is empty
	deletedAt         time.Time
	isCRDDeleted      bool // isCRDDeleted is true if the deletion at deletedAt was that of the CRD
	wasDeleted        bool // wasDeleted is true if the kind has been absent since the deletion of its CRD
	misses            int
	firstMiss         time.Time
	initializingSince time.Time
}

// noteCRDDeletion records that a watch has observed the deletion of the kind's CRD with this UID.
func (m kindHistory) noteCRDDeletion(uid string, now time.Time) kindHistory {
	if m.identity == "" || !m.deletedAt.IsZero() {
		return m
	}
	if known := m.lastSeen.uid; known == "" || known == uid {
		m.deletedAt, m.isCRDDeleted = now, true
	}
	return m
}

// noteAPIServiceDeletion records that a watch has observed the deletion of the kind's APIService. The objects remain in
// the storage of the aggregated API.
func (m kindHistory) noteAPIServiceDeletion(now time.Time) kindHistory {
	if m.identity != "" && m.deletedAt.IsZero() && m.lastSeen.uid == "" {
		m.deletedAt = now
	}
	return m
}

// judgeLook turns the result of a query into a verdict. again is true if the verdict needs another query.
func (m kindHistory) judgeLook(s lookResult, now time.Time) (_ kindHistory, v Verdict, again bool) {
	switch s.outcome {
	case outcomeMissing:
		return m.judgeMissing(s, now)
	case outcomePresent:
		return m.judgePresent(s, now)
	case outcomeInitializing:
		return m.judgeInitializing(s, now)
	case outcomeUnreadable:
	}
	return m, Verdict{Reason: "DiscoveryFailed", Message: fmt.Sprint(s.err)}, true
}

func (m kindHistory) judgeInitializing(s lookResult, now time.Time) (kindHistory, Verdict, bool) {
	// A kind that was served earlier is unclear, not absent, because the API server restarts its storage after a change
	// to the CRD.
	if m.identity != "" && m.deletedAt.IsZero() {
		return m, Verdict{Reason: "StorageInitializing", Message: "the API server is restarting the storage of the kind"}, true
	}
	if m.initializingSince.IsZero() || now.Before(m.initializingSince) {
		m.initializingSince = now
	}
	if now.Sub(m.initializingSince) >= initializingTimeout {
		return kindHistory{}.judgePresent(s, now)
	}
	m = kindHistory{initializingSince: m.initializingSince, wasDeleted: m.wasDeleted || m.isCRDDeleted}
	return m, Verdict{Presence: Absent, Reason: "StorageInitializing", Message: "the API server is still starting the storage of the kind", Deleted: m.wasDeleted}, true
}

func (m kindHistory) judgeMissing(s lookResult, now time.Time) (kindHistory, Verdict, bool) {
	if m.misses++; m.misses == 1 || now.Before(m.firstMiss) { // firstMiss is in the future if the clock was set back.
		m.firstMiss = now
	}
	span := now.Sub(m.firstMiss)
	confirmed := m.misses >= missesNeeded && span >= missesSpan && (!s.mayBeDeleted || span >= watchGrace)
	if m.identity == "" || !m.deletedAt.IsZero() || confirmed {
		m = kindHistory{wasDeleted: m.wasDeleted || m.isCRDDeleted}
		return m, Verdict{Presence: Absent, Reason: "NotServed", Message: "the API server does not serve the kind", Deleted: m.wasDeleted}, false
	}
	return m, Verdict{Reason: "Unconfirmed", Message: "the API server stopped serving the kind a moment ago, " +
		"but no deletion of its CRD was observed"}, true
}

func (m kindHistory) judgePresent(s lookResult, now time.Time) (kindHistory, Verdict, bool) {
	if m.isDoubtful(s, now) {
		return m, Verdict{Reason: "Unconfirmed", Message: "the CRD or the APIService is gone, but the API server still serves the kind"}, true
	}
	if m.isSameKind(s) {
		if !s.crdKnown {
			s.uid = m.lastSeen.uid
		}
		m = kindHistory{identity: m.identity, lastSeen: &s}
	} else {
		m = kindHistory{identity: fmt.Sprintf("%s/%s/%s/%s", s.uid, s.version, s.scope, s.plural), lastSeen: &s}
	}
	v := Verdict{
		Presence: Served, Reason: "Served", Identity: m.identity,
		Plural: s.plural, Namespaced: s.scope == "Namespaced", UID: s.uid, Terminating: s.terminating,
	}
	if s.terminating {
		v.Reason, v.Message = "Terminating", "the CRD is being deleted, and waits until its last object is deleted"
	}
	return m, v, false
}

// isDoubtful reports whether the API server may serve the kind only because it has not yet processed the deletion of
// the kind's CRD or APIService.
func (m kindHistory) isDoubtful(s lookResult, now time.Time) bool {
	return !m.deletedAt.IsZero() && s.uid == "" && now.Sub(m.deletedAt) < deletionGrace
}

// isSameKind reports whether the kind in a query's result is the same as in the last Served verdict. A UID that was
// unknown until now may belong to a CRD whose event arrived late, so it is not considered a difference.
func (m kindHistory) isSameKind(s lookResult) bool {
	if m.identity == "" || s.version != m.lastSeen.version || s.scope != m.lastSeen.scope || s.plural != m.lastSeen.plural {
		return false
	}
	return !s.crdKnown || m.lastSeen.uid == "" || s.uid == m.lastSeen.uid
}
