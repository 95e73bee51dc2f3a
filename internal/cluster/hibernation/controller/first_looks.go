// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

// firstLooks stores the last lease renewal or heartbeat of nodes with wrong clocks, as the first poll of a resume found
// it. Only a later change shows that such a node runs. After a restart of the manager, the next poll counts as the
// first poll. This loses little time, because a kubelet renews its lease every ten seconds.
type firstLooks struct {
	mu      sync.Mutex
	resumes map[types.UID]*firstLook
}

// firstLook is the first poll of one resume. Only the pass of the cluster uses it.
type firstLook struct {
	startedAt time.Time
	lastSeen  map[string]time.Time
}

// ofResume returns the first poll of a cluster's current resume, and adds it if it is missing. It returns nil if no
// resume is recorded.
func (l *firstLooks) ofResume(uid types.UID, o hibernation.Observed) *firstLook {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Old entries are also dropped, so nothing remains of deleted clusters.
	maps.DeleteFunc(l.resumes, func(_ types.UID, old *firstLook) bool { return o.Now.Sub(old.startedAt) > maxResumeAge })
	if o.Record == nil || o.Record.ResumeStartedAt == nil {
		delete(l.resumes, uid)
		return nil
	}
	startedAt := o.Record.ResumeStartedAt.Time
	known := l.resumes[uid]
	if known == nil || !known.startedAt.Equal(startedAt) {
		known = &firstLook{startedAt: startedAt, lastSeen: map[string]time.Time{}}
		l.resumes[uid] = known
	}
	return known
}

// compare sets ClockSkewed and HasChanged of nodes with wrong clocks. A clock that was found to be wrong counts as
// wrong for the rest of the resume.
func (l *firstLook) compare(o hibernation.Observed) {
	if l == nil {
		return
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		first, isKnown := l.lastSeen[n.Name]
		switch {
		case isKnown:
			n.ClockSkewed, n.HasChanged = true, !n.LastSeen.Equal(first)
		case hibernation.IsClockSkewed(o, *n):
			n.ClockSkewed = true
			l.lastSeen[n.Name] = n.LastSeen
		}
	}
}
