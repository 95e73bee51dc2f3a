// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// InstanceReport is what is found of one instance.
type InstanceReport struct {
	// Problem says what is wrong with it and what to do; empty if it is well. It is stable while nothing changes.
	Problem string
	// Errant is what it has and may not have, Ahead what it has of the primary's own that the primary lacks, Gap what it
	// lacks and the primary has deleted.
	Errant, Ahead, Gap gtid.Set
	// InSync: it receives from the primary, acknowledges and applies.
	InSync bool
	// Lag is negative when unknown.
	Lag time.Duration
}

// report fills in what every plan tells.
func (v *view) report(p Plan) Plan {
	p.State = v.state()
	for i := range v.n {
		r := InstanceReport{Problem: v.problem(i), Errant: v.foreign[i], InSync: v.inSync(i), Lag: v.at(i).Channel.Lag}
		if v.settledAhead(i) {
			r.Ahead = v.ahead(i)
		}
		if v.follower(i) {
			r.Gap = v.gap(i)
		}
		if r.InSync {
			p.Synced++
		}
		if v.errant(i) {
			p.Errant = append(p.Errant, i)
		}
		p.Instances = append(p.Instances, r)
	}
	if _, idle := p.Do.(Nothing); !idle {
		p.After = immediately
	}
	p.Initialized, p.Available, p.Healthy, p.ClusteringActive = v.initialized(), v.available(p), v.healthy(p), v.active(p)
	return p
}

// state classifies what was observed, whatever is planned.
func (v *view) state() ClusterState {
	switch {
	case v.Offline:
		return StateOffline
	case v.Source.open():
		return StateCloning
	case v.Restore.open():
		return StateRestoring
	case v.inService() && v.count(v.well) == v.n:
		return StateHealthy
	case v.inService() && v.count(v.acknowledges) >= v.need():
		return StateDegraded
	case v.failed() && v.witnesses() > v.need():
		return StateFailed
	case v.failed():
		return StateLost
	default:
		return StateIncomplete
	}
}

// inService: the primary's clients find it and can use it.
func (v *view) inService() bool {
	s := v.at(v.p)
	open := v.writable(v.p)
	if v.staysReadOnly() {
		open = s.SuperReadOnly
	}
	return s.Reachable && s.Pod.Ready && s.Pod.Role == RolePrimary && open && v.configured()
}

// well: its pod is ready, and as a replica it follows.
func (v *view) well(i int) bool {
	return v.at(i).Pod.Ready && (i == v.p || v.inSync(i))
}

// follower: it should follow the primary, and can be compared with it.
func (v *view) follower(i int) bool {
	return i != v.p && v.at(v.p).Reachable && v.at(i).Reachable && !v.lostData()
}

// problem says what is wrong with an instance: the first that matters.
func (v *view) problem(i int) string {
	s := v.at(i)
	what := v.complaint(i)
	switch {
	case what == "" && !s.Pod.Ready:
		what = "has a pod that is not ready"
	case what == "":
		return ""
	}
	if past := v.past(i); past.Failure != "" && v.Now.Sub(past.FailedAt) < 2*actionBackoff { // The next attempt is on its way.
		what += " (" + past.Failure + ")"
	}
	if s.Stopped {
		what += " and is left alone, as asked"
	}
	return fmt.Sprintf("instance %d %s", i, what)
}

func (v *view) complaint(i int) string {
	s := v.at(i)
	switch {
	case !s.Pod.Exists:
		return "has no pod"
	case !s.Reachable:
		return "does not answer"
	case s.Clone == Cloning:
		return "is being cloned"
	case i == v.p:
		return v.primaryProblem()
	default:
		return v.replicaProblem(i)
	}
}

func (v *view) primaryProblem() string {
	s := v.at(v.p)
	switch {
	case v.lostData():
		return "is the primary and lacks transactions that replicas have"
	case v.hasBacklog() && s.Channel.SQLErrno != 0 && s.Channel.SQL == Stopped:
		return fmt.Sprintf("is the primary and stopped applying its relay log with error %d", s.Channel.SQLErrno)
	case !v.configured():
		return "is the primary and not configured yet"
	case v.doubtful() && s.SuperReadOnly:
		return "is the primary and empty; it is made writable once every other instance answers and is empty too"
	case s.SuperReadOnly && v.count(v.rival) > 0:
		return "is the primary, and read-only while another instance can be written to"
	case !v.writable(v.p) && !v.staysReadOnly():
		return "is the primary and read-only"
	case s.Pod.Role != RolePrimary:
		return "is the primary and has no label yet"
	case v.starved():
		return "is the primary; its clients wait for replicas that are empty, and a copy waits for its clients: delete its pod to end them"
	case v.count(v.acknowledges) < v.need():
		return "is the primary and its clients wait for replicas"
	default:
		return ""
	}
}

func (v *view) replicaProblem(i int) string {
	s := v.at(i)
	switch c := s.Channel; {
	case v.stray(i):
		return "can be written to and is not the primary"
	case v.errant(i):
		return "is errant: it has " + short(v.foreign[i]) + " and nobody else; delete its volume claim and pod to have it cloned anew"
	case v.settledAhead(i):
		return "is ahead of the primary by " + short(v.ahead(i)) + ", so that it will skip what the primary numbers so; delete its volume claim and pod to have it cloned anew"
	case s.SemiSync.Waiting > 0:
		return "has clients that wait for replicas it no longer has"
	case !v.follower(i):
		return ""
	case v.vacant(i):
		return "is empty and not cloned yet"
	case !v.gap(i).IsEmpty():
		return "needs transactions that the primary has deleted; delete its volume claim and pod to have it cloned anew"
	case c.SQL == Stopped && c.SQLErrno != 0:
		return fmt.Sprintf("stopped applying with error %d; SHOW REPLICA STATUS in it says more", c.SQLErrno)
	case v.misdirected(i), v.misflagged(i):
		return "does not follow the primary yet"
	case c.IO != Running && c.IOErrno != 0:
		return fmt.Sprintf("does not receive from the primary, with error %d; SHOW REPLICA STATUS in it says more", c.IOErrno)
	case c.IO != Running || !v.acknowledges(i):
		return "does not receive from the primary"
	case c.SQL == Stopped:
		return "stopped applying"
	case v.lags(i):
		return "is further behind than spec.maxDelaySeconds allows, and clients do not find it"
	default:
		return ""
	}
}

// short prints a set for people; of a long one only how long it is.
func short(s gtid.Set) string {
	if s.IsEmpty() {
		return "transactions of its own"
	}
	if text := s.String(); len(text) <= maxShown {
		return text
	}
	return fmt.Sprintf("%d transactions", s.Count())
}

// maxShown is the length of a set in a message.
const maxShown = 200

func (v *view) initialized() Condition {
	state := v.state()
	switch {
	case state == StateCloning:
		return isFalse(string(state), "The primary is being copied from outside")
	case state == StateRestoring:
		return isFalse(string(state), "The primary is being restored from a backup")
	case v.p == NoInstance && state != StateOffline:
		return isFalse(string(state), v.undecided())
	default:
		return isTrue(ReasonInitialized, "The cluster has a primary")
	}
}

func (v *view) available(p Plan) Condition {
	state := v.state()
	switch {
	case p.Stop != nil:
		return v.unjudged()
	case state == StateHealthy || state == StateDegraded:
		return isTrue(string(state), fmt.Sprintf("The primary, instance %d, is in service", v.p))
	case v.p != NoInstance && !v.at(v.p).Reachable && !v.down(v.p) && state == StateIncomplete:
		return Condition{Status: metav1.ConditionUnknown, Reason: ReasonPrimaryUnanswered, Message: fmt.Sprintf("The primary, instance %d, did not answer", v.p)}
	default:
		return isFalse(string(state), v.problems())
	}
}

func (v *view) healthy(p Plan) Condition {
	switch state := v.state(); {
	case p.Stop != nil:
		return v.unjudged()
	case state == StateHealthy:
		return isTrue(string(state), fmt.Sprintf("Every replica follows the primary, instance %d", v.p))
	default:
		return isFalse(string(state), v.problems())
	}
}

// unjudged: while clustering is stopped nobody looks after the cluster, so that nothing is promised.
func (v *view) unjudged() Condition {
	return Condition{
		Status: metav1.ConditionUnknown, Reason: ReasonStopped,
		Message: fmt.Sprintf("Clustering is stopped; what is seen looks %s", v.state()),
	}
}

func (v *view) active(p Plan) Condition {
	switch {
	case p.Stop != nil && p.Stop.Unfinished != "":
		return isFalse(ReasonInactive, "Clustering is stopped, and not all could be finished: "+p.Stop.Unfinished)
	case p.Stop != nil:
		return isFalse(ReasonInactive, "Clustering is stopped")
	case v.StopAsked:
		return isTrue(ReasonQuiescing, "Clustering is asked to stop and finishes: "+list(v.leftovers()))
	default:
		return isTrue(ReasonActive, "Clustering is active")
	}
}

// problems are everything that is wrong, in the order of the instances.
func (v *view) problems() string {
	var found []string
	if v.failed() {
		found = append(found, v.obstacle())
	}
	for i := range v.n {
		if problem := v.problem(i); problem != "" {
			found = append(found, problem)
		}
	}
	if why := v.unfit(); why != "" {
		found = append(found, why)
	}
	if len(found) == 0 {
		return fmt.Sprintf("The cluster is %s", v.state())
	}
	return list(found)
}

func isTrue(reason, message string) Condition {
	return Condition{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isFalse(reason, message string) Condition {
	return Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
