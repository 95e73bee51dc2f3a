// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

const (
	// surveyInterval is the interval of surveying a running cluster for problems that may affect a hibernation.
	// surveyJitter is the maximum delay of a survey as a fraction of the interval. A survey is part of a poll that is
	// needed anyway.
	surveyInterval = time.Hour
	surveyJitter   = 0.2
	// firstSurveyRetry is the delay before an incomplete survey is repeated. The delay doubles with each further
	// repetition.
	firstSurveyRetry = 15 * time.Second
	// firstSurveyDelay and firstSurveyJitter spread the surveys of known clusters over the hour after a start of the
	// manager.
	firstSurveyDelay, firstSurveyJitter = time.Minute, 59
)

// surveySchedule contains the time of each cluster's next survey.
type surveySchedule struct {
	mu  sync.Mutex
	due map[types.NamespacedName]surveyDue
}

// surveyDue is the time of a cluster's next survey. Backoff is the last wait after an incomplete survey; zero if the
// survey was complete.
type surveyDue struct {
	at      time.Time
	backoff time.Duration
}

func newSurveySchedule() *surveySchedule {
	return &surveySchedule{due: map[types.NamespacedName]surveyDue{}}
}

// isDue reports whether a cluster should be surveyed. A cluster without a survey is due immediately, and others by
// schedule.
func (s *surveySchedule) isDue(cluster types.NamespacedName, isKnown bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, isScheduled := s.due[cluster]
	if !isScheduled {
		if due.at = now; isKnown {
			due.at = now.Add(wait.Jitter(firstSurveyDelay, firstSurveyJitter))
		}
		s.due[cluster] = due
	}
	return !now.Before(due.at)
}

func (s *surveySchedule) noteMade(cluster types.NamespacedName, wasCutShort bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	interval, backoff := surveyInterval, time.Duration(0)
	if wasCutShort {
		backoff = min(max(2*s.due[cluster].backoff, firstSurveyRetry), surveyInterval)
		interval = backoff
	}
	s.due[cluster] = surveyDue{now.Add(wait.Jitter(interval, surveyJitter)), backoff}
}

// untilRetry returns the time until an incomplete survey is repeated. It is zero if the last survey was complete, or
// if another one is due already.
func (s *surveySchedule) untilRetry(cluster types.NamespacedName, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.due[cluster]
	if due.backoff == 0 {
		return 0
	}
	return max(due.at.Sub(now), 0)
}

func (s *surveySchedule) forget(cluster types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, cluster)
}

// reportCheck sets the condition HibernationPossible from the findings of the last survey, and returns events for new
// findings.
func reportCheck(cd *hivev1.ClusterDeployment, seen *clusterObservation, owned map[string]decision.Condition) []decision.Event {
	if seen.check != nil {
		cd.Status.HibernationCheck = seen.check
	}
	check := cd.Status.HibernationCheck
	found := preflight.JudgeCheck(check, stopOf(seen.Observed))
	before := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernationPossibleCondition)
	object := preflight.ObjectFacts{IsBeingDeleted: seen.Deleted, Unsupported: hibernation.UnsupportedReason(seen.Observed)}
	owned[hivev1.ClusterHibernationPossibleCondition] = preflight.Condition(preflight.Join(preflight.JudgeObject(object), found), check != nil)
	return preflight.Events(before, found) // Other conditions report problems of the object itself.
}

// noteCheck records the blocking findings of the newest check.
func (s *clusterObservation) noteCheck(check *hivev1.HibernationCheck) {
	var blocking []preflight.Finding
	for _, f := range preflight.JudgeCheck(check, stopOf(s.Observed)) {
		if f.Severity == preflight.Blocking {
			blocking = append(blocking, f)
		}
	}
	s.IsSurveyed, s.Obstacles = check != nil, ""
	if len(blocking) > 0 {
		s.Obstacles = preflight.Condition(blocking, true).Message
	}
}

// stopOf returns the stop in progress, or the stop that would begin now.
func stopOf(o hibernation.Observed) preflight.StopWindow {
	stop := preflight.StopWindow{Now: o.Now, Since: o.Now, RequiresPossible: o.Options.RequiresPossible}
	switch {
	case o.Stops.Holds():
		newest := o.Stops.RequestedStop()
		stop.Since = newest.Since.Time
		if newest.Until != nil {
			stop.Until = newest.Until.Time
		}
	case o.Scheduled != nil:
		stop.Since = o.Scheduled.Stops[0].Since.Time
		if o.Scheduled.ExpiresAt != nil {
			stop.Until = o.Scheduled.ExpiresAt.Time
		}
	}
	return stop
}
