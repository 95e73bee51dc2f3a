// SPDX-License-Identifier: Apache-2.0

package clustering

import "fmt"

// What makes an instance the primary, and another one its replica, step by step.

// configured: the primary follows nobody, and its commits await replicas.
func (v *view) configured() bool {
	s := v.at(v.p)
	awaits := s.SemiSync.Source && s.SemiSync.WaitFor == v.need() && s.SemiSync.Timeout >= endlessTimeout
	return !s.Channel.Present && (v.need() == 0 || awaits)
}

// receives: the primary still receives from another.
func (v *view) receives() bool {
	return v.free(v.p) && v.at(v.p).Channel.Present && v.at(v.p).Channel.IO != Stopped
}

// hasBacklog: the primary has received transactions of another that it must not forget.
func (v *view) hasBacklog() bool { return v.at(v.p).Reachable && v.unapplied(v.p) }

// opens: the primary should be written to and cannot. It waits for replicas that are on their way, since its clients
// would only hang; a stop does not let it wait.
func (v *view) opens() bool {
	s := v.at(v.p)
	if !v.free(v.p) || !s.ReadOnly && !s.SuperReadOnly || !v.configured() || v.staysReadOnly() || v.doubtful() || v.count(v.rival) > 0 {
		return false
	}
	_, joining := v.first(joining)
	_, awaited := v.first(awaitsCopy)
	return v.StopAsked || v.count(v.follows) >= v.need() || !joining && !awaited
}

// awaitsCopy: it is empty and becomes a copy of the primary. A copy waits for commits that are under way, so that the
// primary must not have clients who wait for a replica that only the copy can bring.
func awaitsCopy(v *view, i int) bool {
	s := v.at(i)
	return i != v.p && s.Reachable && !s.Stopped && (v.vacant(i) || s.Clone == Cloning)
}

// starved: the primary's clients wait for replicas, which can only be copies, and these wait for the clients' commits. A
// session that waits so cannot be ended; a restart ends it, and then the primary stays closed until there is a copy.
func (v *view) starved() bool {
	_, awaited := v.first(awaitsCopy)
	return v.p != NoInstance && !v.StopAsked && v.at(v.p).SemiSync.Waiting > 0 && v.count(v.acknowledges) < v.need() && awaited
}

// labelled: the primary's clients find it.
func (v *view) labelled() bool { return v.at(v.p).Pod.Role == RolePrimary || !v.at(v.p).Pod.Exists }

// unlabelled: the primary is in service and its clients do not find it.
func (v *view) unlabelled() bool {
	inService := v.writable(v.p) || v.staysReadOnly() && v.closed(v.p)
	return v.free(v.p) && v.configured() && inService && !v.labelled()
}

// usurper: its label leads the primary's clients to it.
func usurper(v *view, i int) bool {
	s := v.at(i)
	return i != v.p && s.Pod.Exists && s.Pod.Role == RolePrimary && !s.Stopped && !v.tired(i)
}

// outcast: its label leads clients to a replica that is errant.
func outcast(v *view, i int) bool {
	return v.errant(i) && v.at(i).Pod.Exists && v.at(i).Pod.Role != RoleNone && !v.at(i).Stopped && !v.tired(i)
}

// infectious: an errant replica still acknowledges.
func infectious(v *view, i int) bool {
	return v.errant(i) && v.mine(i) && v.at(i).Channel.IO != Stopped
}

// hung: sessions of its clients still await replicas that it has no more, or keep it from becoming read-only. They must be ended before anything lets them go
// on, since that would tell them that their transactions are safe.
func hung(v *view, i int) bool {
	s := v.at(i)
	return i != v.p && v.mine(i) && (s.SemiSync.Waiting > 0 || v.stray(i) && s.Pending && s.PendingFor >= killClientsAfter)
}

// intruder: a second instance that can be written to.
func intruder(v *view, i int) bool { return v.stray(i) && v.free(i) }

// member: it may follow the primary.
func (v *view) member(i int) bool {
	s := v.at(i)
	return i != v.p && v.at(v.p).Reachable && s.Reachable && !s.Stopped && s.SuperReadOnly && !v.errant(i) &&
		s.SemiSync.Waiting == 0 && s.Clone != Cloning && !v.vacant(i) && v.gap(i).IsEmpty()
}

// joining: it is a member that something has to be done or waited for before it follows.
func joining(v *view, i int) bool {
	return v.member(i) && !v.follows(i) && !v.stuck(i)
}

// stuck: it cannot apply what it received of another source, and only a human can mend it.
func (v *view) stuck(i int) bool {
	return v.misdirected(i) && v.unapplied(i) && v.at(i).Channel.SQLErrno != 0
}

// elsewhere: it receives from another than the primary.
func elsewhere(v *view, i int) bool {
	return v.free(i) && v.member(i) && v.misdirected(i) && v.at(i).Channel.IO != Stopped
}

// idle: it does not apply what it received. A stop only cares where that keeps it from following.
func idle(v *view, i int) bool {
	return v.free(i) && v.member(i) && v.canApply(i) && (!v.StopAsked || v.misdirected(i) && v.unapplied(i))
}

// unconfigured: it does not follow the primary as a replica should, and nothing is lost when it is told to.
func unconfigured(v *view, i int) bool {
	return v.free(i) && v.member(i) && (v.misdirected(i) && !v.unapplied(i) || !v.misdirected(i) && v.misflagged(i))
}

// deaf: it follows the primary and does not receive.
func deaf(v *view, i int) bool {
	return v.free(i) && v.member(i) && !v.misdirected(i) && !v.misflagged(i) && v.at(i).Channel.IO == Stopped
}

// clonable: it is empty, the primary is not, and nothing is being done about it. A donor serves one at a time.
func clonable(v *view, i int) bool {
	cloning := v.count(func(j int) bool { return v.at(j).Clone == Cloning }) > 0
	return i != v.p && v.at(v.p).Reachable && v.free(i) && v.vacant(i) && v.closed(i) && !cloning
}

// presentable: it follows the primary, and its clients do not find it.
func presentable(v *view, i int) bool {
	return v.free(i) && v.follows(i) && v.closed(i) && v.at(i).Pod.Exists && v.at(i).Pod.Role != RoleReplica && !v.lags(i)
}

// lags: it is too far behind for clients. One without a label has to catch up by half, so that labels do not flap.
func (v *view) lags(i int) bool {
	most := v.MaxDelay
	if v.at(i).Pod.Role != RoleReplica {
		most /= 2
	}
	return i != v.p && v.MaxDelay > 0 && v.at(i).Channel.Lag > most
}

// outdated: its label leads clients to what is too old.
func outdated(v *view, i int) bool {
	return v.free(i) && v.lags(i) && v.at(i).Pod.Role == RoleReplica
}

// demoted: it was asked to step down and is no primary.
func demoted(v *view, i int) bool {
	return i != v.p && v.at(i).Pod.Demote && v.at(i).Pod.Exists && !v.at(i).Stopped && !v.tired(i)
}

func openPrimary(v *view, i int) Plan {
	p := Plan{
		Do:     MakeWritable{Index: i, WaitFor: v.need()},
		Why:    fmt.Sprintf("the primary, instance %d, is made writable", i),
		Events: []Event{{Reason: "Writable", Note: fmt.Sprintf("The primary, instance %d, is made writable", i)}},
	}
	if v.switchAsked() && v.gaveUp() {
		p.Events = append(p.Events, Event{
			Warning: true, Reason: "SwitchOverFailed",
			Note: fmt.Sprintf("No replica of instance %d had everything within %s; it stays the primary", i, switchoverTimeout),
		})
	}
	return p
}

func configurePrimary(v *view, i int) Plan {
	return Plan{Do: ConfigurePrimary{Index: i, WaitFor: v.need()}, Why: fmt.Sprintf("instance %d is configured as the primary", i)}
}

func configureReplica(v *view, i int) Plan {
	return Plan{Do: ConfigureReplica{Index: i, Source: v.p}, Why: fmt.Sprintf("instance %d is told to follow the primary, instance %d", i, v.p)}
}

func waitBacklog(v *view, i int) Plan {
	if errno := v.at(i).Channel.SQLErrno; errno != 0 && v.at(i).Channel.SQL == Stopped {
		return Plan{Why: fmt.Sprintf("the primary, instance %d, stopped applying its relay log with error %d", i, errno), After: degradedInterval}
	}
	return Plan{Why: fmt.Sprintf("the primary, instance %d, applies its relay log", i), After: operationInterval}
}

func cloneReplica(v *view, i int) Plan {
	p := Plan{Do: CloneFrom{Index: i, Donor: v.p}, Why: fmt.Sprintf("instance %d is empty and becomes a copy of the primary", i)}
	if v.at(i).Clone == CloneFailed {
		p.Events = []Event{{Warning: true, Reason: "CloneFailed", Note: fmt.Sprintf("The copy of instance %d failed and is begun anew", i)}}
	}
	return p
}
