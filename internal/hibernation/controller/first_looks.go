// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/hibernation"
)

// firstLooks remember when nodes whose clocks are wrong were seen at the first look of a resume, because only a change is a sign of
// life of them. After a restart the next look is the first: a kubelet renews its lease every ten seconds.
type firstLooks struct {
	mu      sync.Mutex
	resumes map[types.UID]*firstLook
}

// firstLook is that of one resume. Only the pass of its cluster uses it.
type firstLook struct {
	startedAt time.Time
	lastSeen  map[string]time.Time
}

// ofResume returns the first look of a cluster's current resume, nil if there is none.
func (l *firstLooks) ofResume(uid types.UID, o hibernation.Observed) *firstLook {
	l.mu.Lock()
	defer l.mu.Unlock()
	// What is too old goes as well, so that nothing stays of clusters that are gone.
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

// compare fills in what is known of nodes with wrong clocks. A clock that was found to be wrong stays so for this resume.
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
