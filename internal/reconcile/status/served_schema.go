// SPDX-License-Identifier: Apache-2.0

package status

import (
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// schemaRetry is how long a field that the schema dropped is not sent again. After that, one write tests whether
	// the schema keeps the field now.
	schemaRetry = 10 * time.Minute
	// hotInterval is the requeue interval below which a rule is considered to wait only for its own report to be
	// stored.
	hotInterval = time.Second
	// minUnkeptBackoff and maxUnkeptBackoff limit the interval of passes that repeat a decision because their report
	// is not stored anywhere.
	minUnkeptBackoff = 200 * time.Millisecond
	maxUnkeptBackoff = 10 * time.Minute
)

// servedSchema records which status fields a kind's served schema drops, as observed in the responses to writes. The
// zero value is ready to use.
type servedSchema struct {
	mu sync.Mutex
	// lost maps the status paths that were not stored to the time of the last attempt; kept holds, for each
	// top-level field that was written, whether it was stored.
	lost map[string]time.Time
	kept map[string]bool
	// waits holds the back-off of each request whose report is not stored.
	waits map[ctrl.Request]unkeptWait
}

type unkeptWait struct {
	rule  string
	after time.Duration
}

// lostFields returns the paths that must not be sent now, sorted.
func (s *servedSchema) lostFields(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := slices.Sorted(maps.Keys(s.lost))
	return slices.DeleteFunc(paths, func(path string) bool { return now.Sub(s.lost[path]) >= schemaRetry })
}

// report returns every path that was lost when it was last sent, sorted, and whether any field has been sent yet.
func (s *servedSchema) report() (lost []string, isTried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.lost)), len(s.lost)+len(s.kept) > 0
}

// learn records the result of a write, and returns the paths that were not known to be lost before.
func (s *servedSchema) learn(written map[string]any, lost []string, now time.Time) (news []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost, s.kept = map[string]time.Time{}, map[string]bool{}
	}
	for _, path := range lost {
		if _, known := s.lost[path]; !known {
			news = append(news, path)
		}
		s.lost[path] = now
		delete(s.kept, topLevelField(path))
	}
	for field := range written {
		s.kept[field] = !slices.ContainsFunc(lost, func(path string) bool { return topLevelField(path) == field })
		// The schema keeps a path of this field if it was sent again and was not lost.
		maps.DeleteFunc(s.lost, func(path string, tried time.Time) bool {
			return topLevelField(path) == field && now.Sub(tried) >= schemaRetry && !slices.Contains(lost, path)
		})
	}
	return news
}

// mayDrop reports whether a field must be kept in the annotation. A field that is already there remains until a
// write shows that the schema keeps it.
func (s *servedSchema) mayDrop(field string, isRemembered bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isLost(field) || isRemembered && !s.kept[field]
}

func (s *servedSchema) isLost(field string) bool {
	for path := range s.lost {
		if topLevelField(path) == field {
			return true
		}
	}
	return false
}

// keepsAll reports whether no top-level field of the paths is known to lose a value.
func (s *servedSchema) keepsAll(paths []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(paths, func(path string) bool { return s.isLost(topLevelField(path)) })
}

// backoff returns the minimum requeue interval of a pass whose report is not stored, or zero unless isHot. Without this
// minimum, a rule that waits for its own report would match again in a tight loop.
func (s *servedSchema) backoff(req ctrl.Request, rule string, isHot bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isHot {
		delete(s.waits, req)
		return 0
	}
	if s.waits == nil {
		s.waits = map[ctrl.Request]unkeptWait{}
	}
	wait := s.waits[req]
	if wait.rule != rule || wait.after == 0 {
		wait = unkeptWait{rule: rule, after: minUnkeptBackoff / 2}
	}
	wait.after = min(2*wait.after, maxUnkeptBackoff)
	s.waits[req] = wait
	return wait.after
}

func (s *servedSchema) forget(req ctrl.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits, req)
}
