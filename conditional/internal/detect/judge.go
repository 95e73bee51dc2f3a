// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"fmt"
	"time"
)

// Presence is what is known of a kind.
type Presence int8

// The three presences. Unclear means: nothing speaks for a change.
const (
	Unclear Presence = iota
	Absent
	Served
)

// Verdict is the detector's answer for one kind.
type Verdict struct {
	Presence        Presence
	Reason, Message string
	// Identity of a Served kind changes when it is another one: with the version, scope and plural, and with the UID of
	// its CRD. That a UID becomes known, or cannot be known any more, is no change. It has no other meaning.
	Identity string
	// Plural, Namespaced and UID are those of a Served kind; UID is that of its CRD, empty when it has none or when
	// CRDs may not be watched.
	Plural     string
	Namespaced bool
	UID        string
	// Terminating is true while the CRD of a Served kind waits for its last object to go.
	Terminating bool
}

// Detecting is the reason of a verdict on a kind that nobody has looked for yet.
const Detecting = "Detecting"

// sighting is what one look at the API server found.
type sighting struct {
	kind      seen
	version   string
	scope     string
	plural    string
	watchable bool

	informed    bool   // a watch knows the kind's CRD, or that there is none
	uid         string // of that CRD
	terminating bool

	err error // of an unreadable sighting
}

type seen int8

const (
	unreadable seen = iota // the server did not answer the question: 5xx, 429, time-out, 401, 403
	missing                // the group version or the kind is not served
	warming                // it is served, but its storage does not answer watches yet
	present
)

// The rules of doubt: a server that lags behind, or two that disagree, must not stop a controller.
const (
	missesNeeded = 3
	missesSpan   = 2 * time.Second
	goneGrace    = 10 * time.Second
	// warmPatience is how long the storage of a new kind is waited for. One that needs a conversion webhook, which the
	// waiting group itself brings, would never be ready before.
	warmPatience = 10 * time.Second
)

// memory is what the judge keeps of one kind.
type memory struct {
	identity  string // of the last Served verdict; empty when the kind was absent, or never seen
	last      sighting
	goneAt    time.Time
	misses    int
	firstMiss time.Time
	warmSince time.Time
}

// gone notes that a watch saw the kind's CRD, with this UID, or its APIService go.
func (m memory) gone(uid string, now time.Time) memory {
	another := m.last.uid != "" && m.last.uid != uid
	if m.identity != "" && m.goneAt.IsZero() && !another {
		m.goneAt = now
	}
	return m
}

// judge turns a sighting into a verdict; again asks for another look.
func (m memory) judge(s sighting, now time.Time) (_ memory, v Verdict, again bool) {
	switch s.kind {
	case missing:
		return m.judgeMissing(now)
	case present:
		return m.judgePresent(s, now)
	case warming:
		return m.judgeWarming(s, now)
	case unreadable:
	}
	return m, Verdict{Reason: "DiscoveryFailed", Message: fmt.Sprint(s.err)}, true
}

func (m memory) judgeWarming(s sighting, now time.Time) (memory, Verdict, bool) {
	if m.identity != "" && m.goneAt.IsZero() {
		return m, Verdict{Reason: "StorageInitializing", Message: "the API server is starting the storage of the kind anew"}, true
	}
	if m.warmSince.IsZero() || now.Before(m.warmSince) {
		m.warmSince = now
	}
	if now.Sub(m.warmSince) >= warmPatience {
		return memory{}.judgePresent(s, now)
	}
	return memory{warmSince: m.warmSince}, Verdict{Presence: Absent, Reason: "StorageInitializing", Message: "the API server is still starting the storage of the kind"}, true
}

func (m memory) judgeMissing(now time.Time) (memory, Verdict, bool) {
	if m.misses++; m.misses == 1 || now.Before(m.firstMiss) { // The clock may have been set back.
		m.firstMiss = now
	}
	confirmed := m.misses >= missesNeeded && now.Sub(m.firstMiss) >= missesSpan
	if m.identity == "" || !m.goneAt.IsZero() || confirmed {
		return memory{}, Verdict{Presence: Absent, Reason: "NotServed", Message: "the API server does not serve the kind"}, false
	}
	return m, Verdict{Reason: "Unconfirmed", Message: "the API server stopped serving the kind a moment ago, its CRD was not seen to go"}, true
}

func (m memory) judgePresent(s sighting, now time.Time) (memory, Verdict, bool) {
	if m.doubts(s, now) {
		return m, Verdict{Reason: "Unconfirmed", Message: "the CRD or the APIService is gone, but the API server still serves the kind"}, true
	}
	if m.same(s) {
		if !s.informed {
			s.uid = m.last.uid
		}
		m = memory{identity: m.identity, last: s}
	} else {
		m = memory{identity: s.identity(), last: s}
	}
	v := Verdict{
		Presence: Served, Reason: "Served", Identity: m.identity,
		Plural: s.plural, Namespaced: s.scope == "Namespaced", UID: s.uid, Terminating: s.terminating,
	}
	if s.terminating {
		v.Reason, v.Message = "Terminating", "the CRD is deleted and waits for its last object to go"
	}
	return m, v, false
}

// doubts tells whether what is still served is what was seen to go a moment ago.
func (m memory) doubts(s sighting, now time.Time) bool {
	return !m.goneAt.IsZero() && s.uid == "" && now.Sub(m.goneAt) < goneGrace
}

// same tells whether a present sighting is of what the memory knows. A UID that was not known before may be that of a
// CRD whose event came late.
func (m memory) same(s sighting) bool {
	if m.identity == "" || s.version != m.last.version || s.scope != m.last.scope || s.plural != m.last.plural {
		return false
	}
	return !s.informed || m.last.uid == "" || s.uid == m.last.uid
}

func (s sighting) identity() string {
	return fmt.Sprintf("%s/%s/%s/%s", s.uid, s.version, s.scope, s.plural)
}
