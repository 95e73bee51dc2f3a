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
	// Identity is CRD UID, version, scope and plural of a Served kind; the UID is empty for built-in kinds.
	Identity string
	// Plural, Namespaced and UID are those of a Served kind; UID is that of its CRD, empty when it has none or when
	// CRDs may not be watched.
	Plural     string
	Namespaced bool
	UID        string
	// Terminating is true while the CRD of a Served kind waits for its last object to go.
	Terminating bool
}

// sighting is what one look at the API server found.
type sighting struct {
	kind    seen
	version string
	scope   string
	plural  string
	uid     string // of the CRD, as far as the watch knows
	err     error  // of an unreadable sighting
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
)

// memory is what the judge keeps of one kind.
type memory struct {
	identity  string // of the last Served verdict; empty when the kind was absent, or never seen
	plural    string
	goneAt    time.Time
	misses    int
	firstMiss time.Time
}

// gone notes that the watch saw the kind's CRD go.
func (m memory) gone(now time.Time) memory {
	if m.identity != "" && m.goneAt.IsZero() {
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
		if m.identity == "" || !m.goneAt.IsZero() {
			return memory{}, Verdict{Presence: Absent, Reason: "StorageInitializing", Message: "the API server is still starting the storage of the kind"}, true
		}
		return m, Verdict{Reason: "StorageInitializing", Message: "the API server is starting the storage of the kind anew"}, true
	case unreadable:
	}
	return m, Verdict{Reason: "DiscoveryFailed", Message: fmt.Sprint(s.err)}, true
}

func (m memory) judgeMissing(now time.Time) (memory, Verdict, bool) {
	if m.misses++; m.misses == 1 {
		m.firstMiss = now
	}
	confirmed := m.misses >= missesNeeded && now.Sub(m.firstMiss) >= missesSpan
	if m.identity == "" || !m.goneAt.IsZero() || confirmed {
		return memory{}, Verdict{Presence: Absent, Reason: "NotServed", Message: "the API server does not serve the kind"}, false
	}
	return m, Verdict{Reason: "Unconfirmed", Message: "the API server stopped serving the kind a moment ago, its CRD was not seen to go"}, true
}

func (m memory) judgePresent(s sighting, now time.Time) (memory, Verdict, bool) {
	if !m.goneAt.IsZero() && s.uid == "" && now.Sub(m.goneAt) < goneGrace {
		return m, Verdict{Reason: "Unconfirmed", Message: "the CRD is gone, but the API server still serves the kind"}, true
	}
	m = memory{identity: s.identity(), plural: s.plural}
	return m, Verdict{Presence: Served, Reason: "Served", Identity: m.identity, Plural: s.plural, Namespaced: s.scope == "Namespaced", UID: s.uid}, false
}

func (s sighting) identity() string {
	return fmt.Sprintf("%s/%s/%s/%s", s.uid, s.version, s.scope, s.plural)
}
