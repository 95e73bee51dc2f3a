// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// schemaRetry is how long a field that was lost is not sent again. Then one write finds out whether the schema keeps it now.
	schemaRetry = 10 * time.Minute
	// hotInterval is the interval of rules that do not wait for the world, but for what they have reported themselves.
	hotInterval = time.Second
	// minUnkeptBackoff and maxUnkeptBackoff bound the interval of passes that decide the same again, because what they
	// reported is not kept anywhere.
	minUnkeptBackoff = 200 * time.Millisecond
	maxUnkeptBackoff = 10 * time.Minute
)

// servedSchema is what the answers to writes have shown of a kind's schema. The zero value is ready.
type servedSchema struct {
	mu sync.Mutex
	// lost are paths of the status that were not kept, and when that was tried last; kept are fields that were.
	lost map[string]time.Time
	kept map[string]bool
	// waits are the intervals of passes whose report is not kept.
	waits map[ctrl.Request]unkeptWait
}

type unkeptWait struct {
	rule  string
	after time.Duration
}

// lostFields returns the paths that are not worth sending now, sorted.
func (s *servedSchema) lostFields(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := slices.Sorted(maps.Keys(s.lost))
	return slices.DeleteFunc(paths, func(path string) bool { return now.Sub(s.lost[path]) >= schemaRetry })
}

// report returns every path that was lost when it was last sent, sorted, and whether anything was sent at all.
func (s *servedSchema) report() (lost []string, isTried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.lost)), len(s.lost)+len(s.kept) > 0
}

// learn takes in what became of a write, and returns the paths that were not known to be lost.
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
		// A path of this field that was sent again and is not lost is kept now.
		maps.DeleteFunc(s.lost, func(path string, tried time.Time) bool {
			return topLevelField(path) == field && now.Sub(tried) >= schemaRetry && !slices.Contains(lost, path)
		})
	}
	return news
}

// mayDrop reports whether a field has to be remembered elsewhere. What was remembered before stays so until the schema was seen
// to keep it.
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

// keepsAll reports whether no path is known to be lost.
func (s *servedSchema) keepsAll(paths []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(paths, func(path string) bool { return s.isLost(topLevelField(path)) })
}

// backoff returns the shortest interval of a pass that looks again at once and whose report is not kept: a rule that waits for its
// own report would be followed again and again.
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
