// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// HoldReason is the reason why a group is held back, on the status page and in the metric.
type HoldReason string

// Reasons why a group is held back. They are stable: no release renames them.
const (
	HeldByRestartLimit   HoldReason = "RestartLimit"   // HeldByRestartLimit means that the next start waits for the restart limit
	HeldByRights         HoldReason = "Forbidden"      // HeldByRights means that a right of Allowed is missing
	HeldByForbiddenWatch HoldReason = "WatchForbidden" // HeldByForbiddenWatch means that discovery is polled, so that starts and stops are late
	HeldByDrain          HoldReason = "Draining"       // HeldByDrain means that runnables have not returned; the next start waits for them
)

// Hold is one reason why a group does not start, or does not start in time.
type Hold struct {
	Reason HoldReason `json:"reason"`
	// Message is a sentence for users.
	Message string `json:"message"`
}

// Reasons of the events about holds. See also the other reasons of events.
const (
	ControllerHeldBack       = "ControllerHeldBack"       // Warning: the restart limit delays the next start
	ControllerForbidden      = "ControllerForbidden"      // Warning: the group waits for a right
	ControllerWatchForbidden = "ControllerWatchForbidden" // Warning: a watch is forbidden, and discovery is polled instead
	ControllerDraining       = "ControllerDraining"       // ControllerDraining means that a stop takes longer than a few seconds
)

const (
	// longDrain is the age at which a drain causes an event. Almost all stops take only milliseconds.
	longDrain = 5 * time.Second
	// holdEventPause is the minimum time between two events of a group with the same reason.
	holdEventPause = time.Minute
	// eventRightsAge is the maximum age of the information whether events may be recorded.
	eventRightsAge = 10 * time.Minute
	// recorderName is the reporting controller of events about CRDs.
	recorderName = "conditional"
)

func holdReasons() []string {
	return []string{string(HeldByRestartLimit), string(HeldByRights), string(HeldByForbiddenWatch), string(HeldByDrain)}
}

// listHoldsLocked returns the group's current holds. refused lists the forbidden watches that the group needs.
func (g *Group) listHoldsLocked(refused []string) (holds []Hold) {
	add := func(reason HoldReason, format string, args ...any) {
		holds = append(holds, Hold{reason, fmt.Sprintf(format, args...)})
	}
	if until := g.status.HeldUntil; !until.IsZero() {
		add(HeldByRestartLimit, "the restart limit holds the next start back until %s", until.UTC().Format(time.RFC3339))
	}
	if g.stateLocked() == ForbiddenReason {
		add(HeldByRights, "%s", g.orders.lastKnown.Message)
	}
	for _, resource := range refused {
		add(HeldByForbiddenWatch, "not allowed to list and watch %s: polling discovery, starts and stops are up to a minute late", resource)
	}
	switch g.status.Phase {
	case Draining:
		add(HeldByDrain, "runnables have not returned yet")
	case Stuck:
		add(HeldByDrain, "runnables have not returned within the drain timeout of %s", g.options.drainTimeout)
	case Dormant, Starting, Running, Failed:
	}
	return holds
}

// refusedWatches must not be called with the group's lock held, because the detector wakes groups while it holds its
// own lock.
func (g *Group) refusedWatches() []string {
	if !g.followsKinds {
		return nil
	}
	return g.server.Detector.RefusedResources(g.optional)
}

// holdEvents limits the events about holds to one per reason and holdEventPause.
type holdEvents map[HoldReason]recordedHold

type recordedHold struct {
	message string // message is empty after the end of the hold
	at      time.Time
}

// findDue returns the holds that need an event now.
func (e holdEvents) findDue(holds []Hold, now time.Time) (due []Hold) {
	for _, h := range holds {
		if last, found := e[h.Reason]; !found || last.message != h.Message && now.Sub(last.at) >= holdEventPause {
			e[h.Reason] = recordedHold{h.Message, now}
			due = append(due, h)
		}
	}
	for reason, last := range e {
		if !slices.ContainsFunc(holds, func(h Hold) bool { return h.Reason == reason }) {
			e[reason] = recordedHold{at: last.at}
		}
	}
	return due
}

// holdRecorder records the events about the holds of one group. Only the group's loop uses it.
type holdRecorder struct {
	events  holdEvents
	crd     *corev1.ObjectReference // crd is nil before a CRD was seen
	ctx     context.Context         // ctx ends with the group
	cancel  context.CancelFunc
	running sync.WaitGroup // running waits for events about CRDs
}

func (l *groupLoop) holdRecorder() *holdRecorder {
	if l.holds == nil {
		l.holds = &holdRecorder{events: holdEvents{}}
		l.holds.ctx, l.holds.cancel = context.WithCancel(l.ctx)
	}
	return l.holds
}

func (r *holdRecorder) end() {
	if r != nil {
		r.cancel()
		r.running.Wait()
	}
}

// recordHolds records an event for each new hold, on the leader.
func (l *groupLoop) recordHolds() {
	if l.isStopping || !l.group.host.isLeader() {
		return
	}
	now, status := time.Now(), l.group.Status()
	holds := slices.DeleteFunc(l.group.HeldBack(), func(h Hold) bool {
		return h.Reason == HeldByDrain && now.Sub(status.Since) < longDrain && status.Phase == Draining
	})
	if len(holds) == 0 && (l.holds == nil || len(l.holds.events) == 0) {
		return
	}
	if l.group.options.events == nil && l.noteCRD() == nil {
		return // The event waits until a CRD is known.
	}
	for _, h := range l.holdRecorder().events.findDue(holds, now) {
		l.recordHold(h)
	}
}

func (l *groupLoop) recordHold(h Hold) {
	eventType, reason, action := corev1.EventTypeWarning, ControllerHeldBack, "Start"
	switch h.Reason {
	case HeldByRestartLimit:
	case HeldByRights:
		reason = ControllerForbidden
	case HeldByForbiddenWatch:
		reason, action = ControllerWatchForbidden, "Watch"
	case HeldByDrain:
		eventType, reason, action = corev1.EventTypeNormal, ControllerDraining, "Stop"
	}
	g := l.group
	if g.options.events != nil {
		g.recordEvent(eventType, reason, action, h.Message)
		return
	}
	crd, ctx, note := l.holds.crd, l.holds.ctx, g.eventNote(h.Message)
	l.holds.running.Go(func() {
		if g.mayRecordEvents(ctx) {
			g.mgr.GetEventRecorder(recorderName).Eventf(crd, nil, eventType, reason, action, "%s", note)
		}
	})
}

// noteCRD returns the first CRD of the group's kinds. It stores the CRD, because a drain outlasts it.
func (l *groupLoop) noteCRD() *corev1.ObjectReference {
	isWatched := len(l.group.refusedWatches()) == 0
	for _, gvk := range l.followedKinds() {
		v, _ := l.group.server.Detector.KnownVerdict(gvk)
		// Without the watch of CRDs, the UID is unknown. The client's scheme contains the API groups that do not need
		// CRDs.
		if v.Presence != detect.Served || v.UID == "" && (isWatched || scheme.Scheme.IsGroupRegistered(gvk.Group)) {
			continue
		}
		l.holdRecorder().crd = &corev1.ObjectReference{
			APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition",
			Name: v.Plural + "." + gvk.Group, UID: types.UID(v.UID),
		}
		break
	}
	if l.holds == nil {
		return nil
	}
	return l.holds.crd
}

// followedKinds returns the kinds of the condition, followed by the optional kinds.
func (l *groupLoop) followedKinds() (kinds []schema.GroupVersionKind) {
	if l.group.kinds != nil {
		return l.group.kinds.kinds
	}
	for _, o := range slices.Backward(l.kinds) { // The observer of the condition is the last one.
		kinds = append(kinds, o.kinds...)
	}
	return kinds
}

// mayRecordEvents reports whether the process's rules grant events about objects without a namespace. These events
// belong to the namespace default. The right is optional, and its absence must not cause an error for every event.
func (g *Group) mayRecordEvents(ctx context.Context) bool {
	c, err := authorizationclient.NewForConfigAndClient(g.mgr.GetConfig(), g.mgr.GetHTTPClient())
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
	defer cancel()
	rules, err := g.server.Rules.Read(ctx, c, metav1.NamespaceDefault, eventRightsAge)
	if err != nil {
		return false
	}
	for _, verb := range []string{"create", "patch"} {
		right := authorizationv1.ResourceAttributes{Verb: verb, Group: "events.k8s.io", Resource: "events"}
		if !isGranted(rules, right) {
			return false
		}
	}
	return true
}
