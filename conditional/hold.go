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
	HeldByForbiddenWatch HoldReason = "WatchForbidden" // HeldByForbiddenWatch means that a watch is forbidden; polling delays starts and stops
	HeldByDrain          HoldReason = "Draining"       // HeldByDrain means that runnables have not returned; the next start waits for them
)

// Hold is one reason why a group does not start, or does not start in time.
type Hold struct {
	Reason HoldReason `json:"reason"`
	// Message is a sentence for users.
	Message string `json:"message"`
}

// Reasons of the events about a Hold. See ControllerStarted for the other reasons.
const (
	ControllerHeldBack       = "ControllerHeldBack"       // Warning: the restart limit delays the next start
	ControllerForbidden      = "ControllerForbidden"      // Warning: the group waits for a right
	ControllerWatchForbidden = "ControllerWatchForbidden" // Warning: a watch is forbidden, and discovery is polled instead
	ControllerDraining       = "ControllerDraining"       // ControllerDraining means that a stop takes longer than a few seconds
)

const (
	// longDrain is the age at which a drain causes an event. Almost all stops take only milliseconds.
	longDrain = 5 * time.Second
	// holdEventPause is the minimum time between two events of a group with the same reason, about the same CRD.
	holdEventPause = time.Minute
	// eventRightsAge is the maximum age of the rules that determine whether events may be recorded.
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
		add(HeldByRestartLimit, "the restart limit delays the next start until %s", until.UTC().Format(time.RFC3339))
	}
	if g.stateLocked() == ForbiddenReason {
		add(HeldByRights, "%s", g.orders.lastKnown.Message)
	}
	for _, resource := range refused {
		add(HeldByForbiddenWatch, "not allowed to list and watch %s: discovery is polled, so starts and stops are up to a minute late", resource)
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

// refusedWatches returns the resources of the forbidden watches that the group needs. It must not be called with the
// group's lock held, because the detector wakes groups while it holds its own lock.
func (g *Group) refusedWatches() []string {
	if !g.followsKinds {
		return nil
	}
	return g.server.Detector.RefusedResources(g.optional)
}

// holdEvent is the event about a Hold.
type holdEvent struct{ eventType, reason, action, message string }

// newHoldEvent returns the event about a Hold of a group in a phase.
func newHoldEvent(h Hold, phase Phase) holdEvent {
	e := holdEvent{corev1.EventTypeWarning, ControllerHeldBack, "Start", h.Message}
	switch h.Reason {
	case HeldByRestartLimit:
	case HeldByRights:
		e.reason = ControllerForbidden
	case HeldByForbiddenWatch:
		e.reason, e.action = ControllerWatchForbidden, "Watch"
	case HeldByDrain:
		if e.reason, e.action = ControllerStuck, "Stop"; phase != Stuck {
			e.eventType, e.reason = corev1.EventTypeNormal, ControllerDraining
		}
	}
	return e
}

// key returns the key of the event in holdEvents. For a forbidden watch it contains the message, because several
// watches may be forbidden at the same time.
func (e holdEvent) key() string {
	if e.reason == ControllerWatchForbidden {
		return e.reason + e.message
	}
	return e.reason
}

// holdEvents limits the events about holds. It maps a key to the last event with that key.
type holdEvents map[string]recordedHold

type recordedHold struct {
	message string    // message is the message of the event
	crd     types.UID // crd is the UID of the CRD at that time; empty if unknown
	at      time.Time
	isOver  bool // isOver is true if the hold ended after the event
}

// findDue returns the events that must be recorded now. It returns at most one event per key within holdEventPause,
// except if both the CRD and the message are new. In that case it returns the event immediately, because a recreated
// CRD does not show the events of the deleted CRD. The message about the restart limit changes after each start.
func (e holdEvents) findDue(current []holdEvent, crd types.UID, now time.Time) (due []holdEvent) {
	for _, h := range current {
		last, found := e[h.key()]
		isNew := !found || last.message != h.message
		if isNew && (!found || crd != last.crd) || (isNew || last.isOver) && now.Sub(last.at) >= holdEventPause {
			e[h.key()] = recordedHold{message: h.message, crd: crd, at: now}
			due = append(due, h)
		}
	}
	for key, last := range e {
		if !slices.ContainsFunc(current, func(h holdEvent) bool { return h.key() == key }) {
			last.isOver = true
			e[key] = last
		}
	}
	return due
}

// holdRecorder records the events about the holds of one group. Only the group's loop uses it.
type holdRecorder struct {
	events  holdEvents
	crd     *corev1.ObjectReference // crd is nil until a CRD is known
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

// recordHolds records the events about current holds that are due. It does nothing on a replica that is not the leader,
// or while another replica runs the group.
func (l *groupLoop) recordHolds() {
	if l.isStopping || !l.group.host.isLeader() || l.group.runsElsewhere() {
		return
	}
	now, status := time.Now(), l.group.Status()
	hasObject := l.group.options.events != nil
	var current []holdEvent
	for _, h := range l.group.HeldBack() {
		e := newHoldEvent(h, status.Phase)
		isShort := e.reason == ControllerDraining && now.Sub(status.Since) < longDrain
		isRecorded := e.reason == ControllerStuck && hasObject // The phase change has recorded this event.
		if !isShort && !isRecorded {
			current = append(current, e)
		}
	}
	if len(current) == 0 && (l.holds == nil || len(l.holds.events) == 0) {
		return
	}
	var crd types.UID
	if !hasObject {
		ref := l.noteCRD()
		if ref == nil {
			return // The event waits until a CRD is known.
		}
		crd = ref.UID
	}
	for _, e := range l.holdRecorder().events.findDue(current, crd, now) {
		l.recordHold(e)
	}
}

func (l *groupLoop) recordHold(e holdEvent) {
	g := l.group
	if g.options.events != nil {
		g.recordEvent(e.eventType, e.reason, e.action, e.message)
		return
	}
	crd, ctx, note := l.holds.crd, l.holds.ctx, g.eventNote(e.message)
	l.holds.running.Go(func() {
		if g.mayRecordEvents(ctx) {
			g.mgr.GetEventRecorder(recorderName).Eventf(crd, nil, e.eventType, e.reason, e.action, "%s", note)
		}
	})
}

// noteCRD stores and returns the first CRD of the group's kinds. The stored CRD is used for events of a drain that
// continues after the CRD was deleted.
func (l *groupLoop) noteCRD() *corev1.ObjectReference {
	isWatched := len(l.group.refusedWatches()) == 0
	for _, gvk := range l.followedKinds() {
		v, _ := l.group.server.Detector.KnownVerdict(gvk)
		// If the watch of CRDs is forbidden, the UID is unknown. client-go's scheme contains the built-in API groups,
		// whose kinds have no CRD.
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

// mayRecordEvents reports whether the process may record events about CRDs. These events are created in the namespace
// default, because a CRD has no namespace. The right is optional, so its absence must not cause an error for every
// event.
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
