// SPDX-License-Identifier: Apache-2.0

package clustering

import "fmt"

// A switchover is: make the primary read-only; see a replica with everything; write it down. The way back is always
// open: a primary that is read-only for no switchover is made writable.

// switchAsked: somebody wants another primary, or the primary's pod is about to go.
func (v *view) switchAsked() bool {
	s := v.at(v.p)
	return v.n > 1 && (s.Pod.Demote || s.Pod.Terminating) && !s.Stopped && !v.StopAsked && !v.staysReadOnly()
}

// switching: and the last attempt is not too fresh.
func (v *view) switching() bool { return v.switchAsked() && v.at(v.p).Reachable && !v.gaveUp() }

func (v *view) gaveUp() bool {
	return !v.History.GaveUpAt.IsZero() && v.Now.Sub(v.History.GaveUpAt) < switchoverRetryAfter
}

// fit: it can be expected to have everything a moment after the primary is read-only.
func (v *view) fit(i int) bool {
	s := v.at(i)
	return v.likely(i) && v.free(i) && v.inSync(i) && s.Pod.Ready && s.Channel.Lag >= 0 && s.Channel.Lag <= maxSwitchoverLag
}

// likely: it is or may soon be an heir.
func (v *view) likely(i int) bool {
	s := v.at(i)
	return v.closed(i) && i != v.p && !s.Stopped && !v.errant(i) && !v.misdirected(i) && s.SemiSync.Waiting == 0 &&
		s.Pod.Exists && !s.Pod.Terminating && !s.Pod.Demote
}

// beginSwitch: the primary can be made read-only, since somebody is fit.
func (v *view) beginSwitch() bool {
	_, ok := v.best(v.fit)
	return v.switching() && ok && v.free(v.p) && !v.at(v.p).SuperReadOnly
}

// heir finds the replica that has everything of a primary that is read-only.
func (v *view) heir() (int, bool) {
	i, ok := v.best(func(i int) bool { return v.likely(i) && v.at(i).Executed.Contains(v.at(v.p).Executed) })
	return i, ok && v.switching() && v.closed(v.p) && v.at(v.p).SemiSync.Waiting == 0
}

// awaitsHeir: the primary is read-only, and somebody is catching up.
func (v *view) awaitsHeir() bool {
	return v.switching() && v.closed(v.p) && v.count(func(i int) bool { return v.likely(i) && v.inSync(i) }) > 0
}

// sealed: it is read-only for everybody. While the statement still waits for commits, super_read_only alone says so.
func (s *Instance) sealed() bool { return s.ReadOnly && s.SuperReadOnly }

// hesitates: the primary does not become read-only because of its clients.
func (v *view) hesitates() bool {
	s := v.at(v.p)
	return v.switching() && v.mine(v.p) && s.Pending && s.PendingFor >= killClientsAfter && !s.sealed()
}

// cancels: a statement still runs in the primary, and nobody wants its effect any more.
func (v *view) cancels() bool {
	s := v.at(v.p)
	unwanted := (v.StopAsked || v.gaveUp()) && !s.sealed()
	return v.mine(v.p) && s.Pending && !v.switching() && (unwanted || s.PendingFor >= killClientsAfter)
}

func demote(v *view, _ int) Plan {
	heir, _ := v.best(v.fit)
	return Plan{Do: SetReadOnly{Index: v.p}, Why: fmt.Sprintf("instance %d is made read-only, for instance %d to take its place", v.p, heir)}
}

func electHeir(v *view, i int) Plan {
	return Plan{
		Do:     PromoteInStatus{Index: i, From: v.p},
		Why:    fmt.Sprintf("instance %d has everything and becomes the primary", i),
		Events: []Event{{Reason: "SwitchOver", Note: fmt.Sprintf("Instance %d takes the place of the primary, instance %d", i, v.p)}},
	}
}

// unfit says why a switchover that is asked for does not begin; empty if none is.
func (v *view) unfit() string {
	switch {
	case !v.switchAsked() || v.at(v.p).SuperReadOnly:
		return ""
	case v.gaveUp():
		return fmt.Sprintf("the switchover from instance %d took too long and is tried again later", v.p)
	default:
		return fmt.Sprintf("the switchover from instance %d waits for a replica that is in sync and ready", v.p)
	}
}
