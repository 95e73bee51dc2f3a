// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// NoInstance is the index of no instance.
const NoInstance = -1

// Observed is everything that Decide looks at: what is wanted, what is written down, and what the instances say.
// The status is read first and past any cache, then the replicas, then the primary.
type Observed struct {
	Now time.Time
	// IsBeingDeleted says that the cluster is about to go, IsStopOverdue that a stop should have ended by now. The servers are
	// not looked at then, unless clustering is stopped and its start has to be judged.
	IsBeingDeleted, IsStopOverdue bool
	// IsOtherStopOverdue says that it is not the stop of clustering itself which should have ended.
	IsOtherStopOverdue bool
	// Replicas is how many instances are wanted, all of them counted.
	Replicas int
	// Offline says that no instance is wanted to run.
	Offline bool
	// Source is the copy from outside that the primary starts with; Restore is the backup that it starts with.
	Source, Restore OneTimeOperation
	// SourceProblem says why nothing can be asked of the source outside; empty if its Secret names one.
	SourceProblem string
	// Waits bound the patience with a primary that does not answer.
	Waits FailoverWaits
	// MaxDelay is how far behind a replica may be that clients read from; 0 is no limit.
	MaxDelay time.Duration
	// StopAsked says that clustering is wanted to be stopped, and StartForced that it is to start whatever that does.
	StopAsked, StartForced bool
	// ReclonesErrant says that errant replicas are wanted to be cloned anew.
	ReclonesErrant bool
	// HasLeftovers says that annotations are there which are about a stop that is over: the next stop would take them over.
	HasLeftovers bool

	// Rotation is what was asked of the accounts' passwords, and how far it is.
	Rotation PasswordRotation

	// Primary is the index of the primary in the status; NoInstance before there was one.
	Primary int
	// GuaranteedAcks is how many replicas, by the status, have every commit that a client was told of; nil if that was never written down.
	GuaranteedAcks *int
	// Stop is the record of the stop that was reached; nil while clustering is active.
	Stop *StopRecord
	// History is what the manager remembers of its earlier looks, with this one.
	History History

	// Instances are by index.
	Instances []Instance
}

// NeedsReplicationWatch reports whether an instance is a replica that applies what it receives, and has to tell at once when it does
// not any more: the next look may be far off. A stop lets the servers be.
func (o Observed) NeedsReplicationWatch(i int) bool {
	s := o.Instances[i]
	isActive := o.Primary != NoInstance && !o.Offline && !o.StopAsked && o.Stop == nil
	return isActive && i != o.Primary && s.Reachable && !s.Stopped && s.Channel.SQL == Running
}

// PasswordRotation is read only while one is asked for. Its states are kept in the cluster's Secret, and in the servers.
type PasswordRotation struct {
	// Asked says that new passwords are wanted, or the end of the old ones, or both: what was begun is finished.
	Asked, DiscardAsked bool
	// ID names the rotation that was begun; empty if none was. IsPromoted says that its passwords are in force.
	ID         string
	IsPromoted bool
	// KnownSince is since when every file with a password has the ones that are in force; zero while one has not.
	KnownSince time.Time
}

// IsWanted reports whether a rotation is to go on.
func (r PasswordRotation) IsWanted() bool { return r.Asked || r.DiscardAsked }

// FailoverWaits are for how long a primary may not answer.
type FailoverWaits struct {
	// Silent is for one whose replicas do not receive from it either; 0 is half a second.
	Silent time.Duration
	// Unseen is for one whose replicas receive from it, so that only the manager does not reach it; 0 is for ever.
	Unseen time.Duration
}

// OneTimeOperation is something that happens once in the life of a cluster.
type OneTimeOperation struct{ Wanted, Done bool }

func (o OneTimeOperation) isOutstanding() bool { return o.Wanted && !o.Done }

// StopRecord is written down when a stop is reached. From then on nothing is touched, even if the manager restarts.
type StopRecord struct {
	Since time.Time
	// Unfinished says what could not be finished in time; empty if nothing is left.
	Unfinished string
}

// Instance is one instance of the cluster.
type Instance struct {
	// Host is the name under which replicas know it, and Port where they connect.
	Host string
	Port int
	Pod  PodFacts
	// Stopped says that this instance is wanted to be left alone.
	Stopped bool
	// KnownErrant is what the status says, from the last look at which the primary could be compared.
	KnownErrant bool
	// Discarded is what the status names of the transactions that it has lost, or is about to lose, by being cloned anew.
	Discarded gtid.Set

	// Reachable says that it answered every question of this look. The fields of its server are empty otherwise.
	Reachable bool
	// Refused says that nothing listens on its port, so that its server is certainly down.
	Refused bool
	// Pending says that a statement of a manager still runs in the server, whichever manager sent it, and PendingFor how long.
	Pending    bool
	PendingFor time.Duration

	UUID string
	// Series is the release series of its version, such as 8.4.
	Series ReleaseSeries
	// ReadOnly and SuperReadOnly are the server's; with the latter not even administrators write.
	ReadOnly, SuperReadOnly bool
	// Executed and Purged are read after SuperReadOnly and Pending, so that a set of a read-only server is final.
	Executed, Purged gtid.Set
	// Owned is what it commits at this moment. It is read before Executed, so that it is in one of them at least.
	Owned    gtid.Set
	SemiSync SemiSync
	// Weakened are the settings by which it may lose what it acknowledged, sorted.
	Weakened []string
	// HasOldAccounts says that its accounts are not those of today's list.
	HasOldAccounts bool
	// Rotation is that by which its accounts got two passwords; empty while they have one.
	Rotation string
	// TLSSecret is the Secret with the certificate of its Pod; empty for a Pod that has none, or that is not there.
	TLSSecret string
	// CertificateIsAging says that its server shows one that should have been renewed.
	CertificateIsAging bool
	// Connected are the UUIDs of the replicas that it serves.
	Connected []string
	Channel   ReplicationChannel
	Clone     CloneState
	// IsUnwatched says that the statement which would tell when it does not apply any more has ended, and none is begun in this look.
	IsUnwatched bool
}

// PodFacts is the instance's pod.
type PodFacts struct {
	Exists, Ready, Terminating bool
	// Demote says that another primary is wanted, and Reclone that the instance is to be cloned anew.
	Demote, Reclone bool
	Role            PodRole
}

// PodRole is the label by which Services find an instance.
type PodRole string

// The roles.
const (
	RoleNone    PodRole = ""
	RolePrimary PodRole = "primary"
	RoleReplica PodRole = "replica"
)

// ReleaseSeries is a series of MySQL versions. A replica must not be of an older one than its source.
type ReleaseSeries struct{ Major, Minor int }

func (s ReleaseSeries) isOlderThan(other ReleaseSeries) bool {
	return s.Major < other.Major || s.Major == other.Major && s.Minor < other.Minor
}

// SemiSync is the state of semi-synchronous replication in a server.
type SemiSync struct {
	Source, Replica bool
	// ReplicaActive says that the receiving thread acknowledges; one that connected before Replica was set does not.
	ReplicaActive bool
	// WaitFor is how many replicas a commit awaits, and Timeout how long.
	WaitFor int
	Timeout time.Duration
	// Waiting is the number of sessions that await a replica now.
	Waiting int
	// HasGivenUp says that commits await nobody although Source is set, because a replica was awaited for too long, or too few were there.
	HasGivenUp bool
}

// awaited is how many replicas a commit awaits.
func (s SemiSync) awaited() int {
	if !s.Source {
		return 0
	}
	return s.WaitFor
}

// ReplicationChannel is the replication channel of a replica.
type ReplicationChannel struct {
	// Present says that SHOW REPLICA STATUS has a row.
	Present    bool
	SourceHost string
	SourcePort int
	IO, SQL    ThreadState
	// IOErrno and SQLErrno are the last errors of the threads; their texts may hold data and stay in the server.
	IOErrno, SQLErrno int
	// Lag is negative when unknown.
	Lag time.Duration
	// HasOldPassword says that it logs in with another password than the newest. It is known during a rotation.
	HasOldPassword bool
	// IsVerified says that it takes nothing from a source without a certificate of the cluster's.
	IsVerified bool
	// IsOutside says that it leads to the source outside, as the Secret has that, with its password.
	IsOutside bool
	// HeardAgo is how long ago the source sent something last, a heartbeat at least; negative when that is not known.
	HeardAgo time.Duration
	// Retrieved is what the relay log holds or held.
	Retrieved gtid.Set
}

// ThreadState is the state of a replication thread.
type ThreadState string

// The states of a thread.
const (
	Stopped    ThreadState = ""
	Connecting ThreadState = "connecting"
	Running    ThreadState = "running"
)

// CloneState is the state of the last CLONE INSTANCE that the server received.
type CloneState string

// The states of a clone.
const (
	NotCloned   CloneState = ""
	Cloning     CloneState = "in progress"
	Cloned      CloneState = "completed"
	CloneFailed CloneState = "failed"
	// primaryDownAfter is for how long, and primaryDownMisses at how many looks, a primary with a Pod that is ready must not
	// answer before it counts as down.
	primaryDownAfter  = 500 * time.Millisecond
	primaryDownMisses = 2
	// heardTimeout is how old the last sign of life may be that a replica got of the primary. It sends one every half second.
	heardTimeout = 3 * time.Second
	// clusterStartTimeout is how long a cluster that has just started waits for the primary it had.
	clusterStartTimeout = 30 * time.Second
	// switchoverTimeout is how long a primary may be read-only for a switchover, and switchoverRetryAfter the time between
	// two attempts.
	switchoverTimeout    = 10 * time.Second
	switchoverRetryAfter = 30 * time.Second
	// maxSwitchoverLag is how far behind a replica may be for a switchover to begin.
	maxSwitchoverLag = 5 * time.Second
	// killClientsAfter is for how long clients may keep a server from becoming read-only.
	killClientsAfter = 2 * time.Second
	// stopTimeout is how long a stop may take to be reached.
	stopTimeout = 15 * time.Second
	// maxUnreceived is how many transactions a replica may have yet to receive before commits await it.
	maxUnreceived = 1000
	// reloadInterval is when a server looks for a newer certificate again; the kubelet needs a while to bring it.
	reloadInterval = 2 * time.Minute
	// stoppedThreadTimeout is how long a thread of a replica may be stopped before its clients are sent to others.
	stoppedThreadTimeout = 3 * time.Second
	// stallTimeout is how long nothing may be committed or received although there is something, and connectTimeout how long a
	// replica may take to connect.
	stallTimeout, connectTimeout = 10 * time.Second, 5 * time.Second
	// actionBackoff is how long an instance is left alone after an action that did not help.
	actionBackoff = 2 * time.Second
	// refusalBackoff is how long a replica is left alone that its source refuses again and again.
	refusalBackoff = 30 * time.Second
	// endlessTimeout is a wait for replicas that no commit outlives.
	endlessTimeout = 24 * time.Hour
)

// When to look again.
const (
	// immediately is through the queue, so that other clusters have their turn.
	immediately = time.Millisecond
	// operationInterval is for the steps of an operation, suspicionInterval for a primary that may have failed.
	operationInterval = 100 * time.Millisecond
	suspicionInterval = 250 * time.Millisecond
	// recheckInterval is the first one for a primary that replicas still hear, who may not have noticed its end yet.
	recheckInterval = 20 * time.Millisecond
	// The others are for a cluster with which nothing is to be done.
	degradedInterval = time.Second
	healthyInterval  = 10 * time.Second
	stoppedInterval  = 30 * time.Second
	// refusedInterval is for a cluster that starts once what speaks against it is mended.
	refusedInterval = 5 * time.Second
)
