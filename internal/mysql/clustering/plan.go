// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

// Plan is what Decide returns: at most one effect, and what to report.
type Plan struct {
	// Rule is the name of the rule that matched, Why what it waits for or does, for logs.
	Rule, Why string
	// Do is the effect.
	Do Action
	// State is the cluster's.
	State ClusterState
	// The owned conditions, all of them in every plan.
	Initialized, Available, Healthy, ClusteringActive decision.Condition
	// Instances are the findings by index; Synced counts the replicas that follow, Errant lists those that must not.
	Instances []InstanceReport
	Synced    int
	Errant    []int
	// Stop replaces the record of the stop; SourceDone is to be written down.
	Stop       *StopRecord
	SourceDone bool
	// Events are emitted once the effect has succeeded and the status is saved.
	Events []decision.Event
	// After is when to look again, unless something happens before.
	After time.Duration
}

// ClusterState is the cluster's state in one word, as MOCO calls it.
type ClusterState string

// The states.
const (
	StateCloning    ClusterState = "Cloning"
	StateRestoring  ClusterState = "Restoring"
	StateHealthy    ClusterState = "Healthy"
	StateDegraded   ClusterState = "Degraded"
	StateFailed     ClusterState = "Failed"
	StateLost       ClusterState = "Lost"
	StateIncomplete ClusterState = "Incomplete"
	StateOffline    ClusterState = "Offline"
)

// Reasons of conditions beside the names of the states.
const (
	ReasonInitialized       = "Initialized"
	ReasonActive            = "ClusteringActive"
	ReasonInactive          = "ClusteringInactive"
	ReasonQuiescing         = "Quiescing"
	ReasonStopped           = "ClusteringStopped"
	ReasonPrimaryUnanswered = "PrimaryUnanswered"
)

// eventAction is what was tried, as events of a plan name it.
const eventAction = "Cluster"

func normalEvent(reason, note string) decision.Event {
	return decision.Event{Reason: reason, Action: eventAction, Note: note}
}

func warningEvent(reason, note string) decision.Event {
	return decision.Event{Warning: true, Reason: reason, Action: eventAction, Note: note}
}

// Action is one effect on the world. The set is closed. Every action may be repeated, returns soon, and is one session in
// one server or one write to the API server; what it waits for is observed by later passes.
//
//sumtype:decl
type Action interface{ targets() []int }

// Nothing leaves the world as it is.
type Nothing struct{}

// PromoteInStatus writes the new primary into the status, if the status still names the old one.
type PromoteInStatus struct{ Index, From int }

// SetReadOnly sets super_read_only and ends the clients' sessions once it holds. The statement may hang behind clients:
// then it stays pending, and the action has returned.
type SetReadOnly struct{ Index int }

// MakeWritable turns semi-synchronous replication on for WaitFor replicas, if any, and then read_only off. One session does
// both, since a server that restarts in between has forgotten the former.
type MakeWritable struct{ Index, WaitFor int }

// KillConnections ends the sessions of clients. In a replica, which is read-only or about to be, it then ends their waits for
// acknowledgements too: with the sessions gone, no client takes the end of the wait for an acknowledgement.
type KillConnections struct{ Index int }

// CancelPending ends our own sessions in which a statement still runs.
type CancelPending struct{ Index int }

// StopIO is the fence: it ends our own sessions in which a statement still runs and stops the receiving thread.
type StopIO struct{ Indexes []int }

// StartIO starts the receiving thread.
type StartIO struct{ Index int }

// RestartSQL starts the applying thread.
type RestartSQL struct{ Index int }

// ConfigurePrimary removes the replication channel with RESET REPLICA ALL and makes commits await WaitFor replicas.
type ConfigurePrimary struct{ Index, WaitFor int }

// ConfigureReplica makes an instance follow another: semi-synchronous as a replica and not as a source, both threads
// running. Only another source is changed, since that drops the relay log.
type ConfigureReplica struct{ Index, Source int }

// CloneFrom starts to copy another instance into an empty one; the Donor None is the source outside. It makes sure in its
// own session that nothing was executed or received there.
type CloneFrom struct{ Index, Donor int }

// SetRole labels the pod. Before a label is added, clients' sessions that came under another are ended.
type SetRole struct {
	Index int
	Role  PodRole
}

// ClearDemote removes the request for another primary.
type ClearDemote struct{ Index int }

// EndStop removes the annotations of a stop whose time is over.
type EndStop struct{}

// TargetInstances returns the indexes of the instances that an action touches; a write to the cluster's own object touches
// none.
func TargetInstances(do Action) []int { return do.targets() }

func (Nothing) targets() []int            { return nil }
func (PromoteInStatus) targets() []int    { return nil }
func (a SetReadOnly) targets() []int      { return []int{a.Index} }
func (a MakeWritable) targets() []int     { return []int{a.Index} }
func (a KillConnections) targets() []int  { return []int{a.Index} }
func (a CancelPending) targets() []int    { return []int{a.Index} }
func (a StopIO) targets() []int           { return a.Indexes }
func (a StartIO) targets() []int          { return []int{a.Index} }
func (a RestartSQL) targets() []int       { return []int{a.Index} }
func (a ConfigurePrimary) targets() []int { return []int{a.Index} }
func (a ConfigureReplica) targets() []int { return []int{a.Index} }
func (a CloneFrom) targets() []int        { return []int{a.Index} }
func (a SetRole) targets() []int          { return []int{a.Index} }
func (a ClearDemote) targets() []int      { return []int{a.Index} }
func (EndStop) targets() []int            { return nil }
