// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// NoInstance stands for the absence of an instance.
const NoInstance = -1

// Observed is everything that Decide reads: the request, the stored state, and the state of the instances. The status
// is read first and past any cache, then the replicas, then the primary.
type Observed struct {
	Now time.Time
	// IsBeingDeleted means that the cluster is being deleted, IsStopOverdue that a stop should have ended by now. The
	// servers are not observed then, unless clustering is stopped and its start has to be judged.
	IsBeingDeleted, IsStopOverdue bool
	// IsOtherStopOverdue means that only stops of single instances are overdue, not the stop of clustering.
	IsOtherStopOverdue bool
	// Replicas is the number of wanted instances, including the primary.
	Replicas int
	// Offline means that no instance should run.
	Offline bool
	// Source is the copy of an external server that the primary starts with. Restore is the backup that it starts
	// with.
	Source, Restore OneTimeOperation
	// SourceProblem explains why the external server cannot be used. It is empty if its Secret is valid.
	SourceProblem string
	// Waits limit how long a primary may not answer.
	Waits FailoverWaits
	// MaxDelay is the maximum lag of a replica that clients read from; 0 is no limit.
	MaxDelay time.Duration
	// MaxDelayForDeletion is the maximum lag of a replica while the primary's Pod may be deleted and a switchover may
	// begin; 0 is no limit.
	MaxDelayForDeletion time.Duration
	// StopAsked means that a stop of clustering is requested. StartForced means that clustering is to start despite
	// all findings.
	StopAsked, StartForced bool
	// ReclonesErrant means that errant replicas are to be re-cloned.
	ReclonesErrant bool
	// HasLeftovers means that annotations of a finished stop remain. The next stop would use them.
	HasLeftovers bool

	// Rotation is the requested rotation of the accounts' passwords, and its progress.
	Rotation PasswordRotation

	// Primary is the index of the primary in the status; NoInstance before the first one.
	Primary int
	// GuaranteedAcks is the number of replicas that have every acknowledged commit, by the status; nil if it was
	// never recorded.
	GuaranteedAcks *int
	// Stop is the record of the stop that was reached; nil while clustering is active.
	Stop *StopRecord
	// History is what the manager remembers of earlier passes, including this one.
	History History

	// Instances are by index.
	Instances []Instance
}

// NeedsReplicationWatch reports whether an instance is a replica that applies what it receives, so that the manager
// has to learn at once when it no longer does. The next pass may be far off. Servers of a stopped cluster are not
// watched.
func (o Observed) NeedsReplicationWatch(i int) bool {
	s := o.Instances[i]
	isActive := o.Primary != NoInstance && !o.Offline && !o.StopAsked && o.Stop == nil
	return isActive && i != o.Primary && s.Reachable && !s.Stopped && s.Channel.SQL == Running
}

// PasswordRotation is read only while a rotation is requested. Its state is stored in the cluster's Secret and in the
// servers.
type PasswordRotation struct {
	// Asked means that new passwords are requested, DiscardAsked that the old ones are to end. Both may be set. A
	// rotation that was begun is finished.
	Asked, DiscardAsked bool
	// ID is the name of the rotation that was begun; empty if none was. IsPromoted means that its passwords are in
	// force.
	ID         string
	IsPromoted bool
	// KnownSince is since when every password file has the passwords in force; zero while one does not.
	KnownSince time.Time
}

// IsWanted reports whether a rotation is requested.
func (r PasswordRotation) IsWanted() bool { return r.Asked || r.DiscardAsked }

// FailoverWaits define how long a primary may not answer.
type FailoverWaits struct {
	// Silent is for a primary whose replicas do not receive from it either; 0 means half a second.
	Silent time.Duration
	// Unseen is for a primary whose replicas receive from it, so only the manager cannot reach it; 0 means no
	// limit.
	Unseen time.Duration
}

// OneTimeOperation is an operation that happens once in the life of a cluster.
type OneTimeOperation struct{ Wanted, Done bool }

func (o OneTimeOperation) isOutstanding() bool { return o.Wanted && !o.Done }

// StopRecord is stored when a stop is reached. From then on nothing is changed, even if the manager restarts.
type StopRecord struct {
	Since time.Time
	// Unfinished describes what could not be finished in time; empty if nothing is left.
	Unfinished string
}

// Instance is one instance of the cluster.
type Instance struct {
	// Host is the name that replicas connect to, and Port the port.
	Host string
	Port int
	Pod  PodFacts
	// Stopped means that clustering is stopped for this instance, so no action may touch it.
	Stopped bool
	// KnownErrant is the result of the last comparison with the primary, from the status.
	KnownErrant bool
	// Discarded is the set of transactions that re-clones of it discard or discarded, from the status.
	Discarded gtid.Set

	// Reachable means that it answered every query of this pass. Otherwise the fields of its server are empty.
	Reachable bool
	// Refused means that nothing listens on its port, so its server is certainly down.
	Refused bool
	// Pending means that a statement of a manager, this one or another, still runs in the server. PendingFor is for
	// how long.
	Pending    bool
	PendingFor time.Duration

	UUID string
	// Series is the release series of its version, such as 8.4.
	Series ReleaseSeries
	// ReadOnly and SuperReadOnly are the server's variables. With the latter even administrators cannot write.
	ReadOnly, SuperReadOnly bool
	// Executed and Purged are read after SuperReadOnly and Pending, so that the set of a read-only server is final.
	Executed, Purged gtid.Set
	// Owned is the set of transactions that it is committing. It is read before Executed, so that each transaction is
	// in at least one of them.
	Owned    gtid.Set
	SemiSync SemiSync
	// Weakened lists the settings that may lose acknowledged transactions, sorted.
	Weakened []string
	// HasOldAccounts means that its accounts are not those of the current list, or that their passwords expire.
	HasOldAccounts bool
	// ExpiredAccounts are the accounts whose passwords have expired. A reachable primary lists all of them. An
	// instance that refuses the manager lists the manager's own.
	ExpiredAccounts []string
	// Rotation is the ID of the rotation that gave its accounts two passwords; empty while they have one.
	Rotation string
	// TLSSecret is the Secret with the certificate of its Pod; empty if the Pod has none or does not exist.
	TLSSecret string
	// CertificateIsAging means that its server presents a certificate that should have been renewed.
	CertificateIsAging bool
	// Connected lists the UUIDs of the replicas that are connected to it.
	Connected []string
	Channel   ReplicationChannel
	Clone     CloneState
	// IsUnwatched means that the statement that detects the end of applying has ended, and that this pass begins no
	// new one.
	IsUnwatched bool
}

// PodFacts is the instance's pod.
type PodFacts struct {
	Exists, Ready, Terminating bool
	// Demote means that another primary is requested, Reclone that a re-clone is requested.
	Demote, Reclone bool
	// Protected means that the Pod has the annotation that prevents its deletion.
	Protected bool
	Role      PodRole
}

// PodRole is the label by which Services find an instance.
type PodRole string

// These are the roles in the label of a Pod.
const (
	RoleNone    PodRole = ""
	RolePrimary PodRole = "primary"
	RoleReplica PodRole = "replica"
)

// ReleaseSeries is a series of MySQL versions. A replica must not be of an older series than its source.
type ReleaseSeries struct{ Major, Minor int }

func (s ReleaseSeries) isOlderThan(other ReleaseSeries) bool {
	return s.Major < other.Major || s.Major == other.Major && s.Minor < other.Minor
}

// SemiSync is the state of semi-synchronous replication in a server.
type SemiSync struct {
	Source, Replica bool
	// ReplicaActive means that the IO thread acknowledges. A thread that connected before Replica was set does not.
	ReplicaActive bool
	// WaitFor is how many replicas a commit waits for, and Timeout how long.
	WaitFor int
	Timeout time.Duration
	// Waiting is the number of sessions that wait for a replica now.
	Waiting int
	// HasGivenUp means that commits wait for no replica although Source is set, because a wait timed out or too few
	// replicas were connected.
	HasGivenUp bool
}

// awaited returns how many replicas a commit waits for.
func (s SemiSync) awaited() int {
	if !s.Source {
		return 0
	}
	return s.WaitFor
}

// ReplicationChannel is the replication channel of a replica.
type ReplicationChannel struct {
	// Present means that SHOW REPLICA STATUS returns a row.
	Present    bool
	SourceHost string
	SourcePort int
	IO, SQL    ThreadState
	// IOErrno and SQLErrno are the last errors of the threads. Their texts may contain data and are not read.
	IOErrno, SQLErrno int
	// Lag is negative when unknown.
	Lag time.Duration
	// HasOldPassword means that it logs in with a password that is not the newest. It is known during a rotation.
	HasOldPassword bool
	// IsVerified means that it accepts only a source with a certificate of the cluster.
	IsVerified bool
	// IsOutside means that it leads to the external server with the address and password of the Secret.
	IsOutside bool
	// HeardAgo is the time since the source last sent anything, at least a heartbeat; negative when unknown.
	HeardAgo time.Duration
	// Retrieved is the set of transactions that the relay log holds or held.
	Retrieved gtid.Set
}

// ThreadState is the state of a replication thread.
type ThreadState string

// These are the states of a thread.
const (
	Stopped    ThreadState = ""
	Connecting ThreadState = "connecting"
	Running    ThreadState = "running"
)

// CloneState is the state of the last CLONE INSTANCE statement that was run on the server.
type CloneState string

// These are the states of a clone.
const (
	NotCloned   CloneState = ""
	Cloning     CloneState = "in progress"
	Cloned      CloneState = "completed"
	CloneFailed CloneState = "failed"
	// A primary with a ready Pod counts as down after primaryDownMisses passes without an answer within at least
	// primaryDownAfter.
	primaryDownAfter  = 500 * time.Millisecond
	primaryDownMisses = 2
	// heardTimeout is the maximum age of the last packet that a replica received from the primary. The primary sends
	// a heartbeat every half second.
	heardTimeout = 3 * time.Second
	// clusterStartTimeout is how long a cluster that has just started waits for its previous primary.
	clusterStartTimeout = 30 * time.Second
	// switchoverTimeout is how long a primary may be read-only for a switchover, and switchoverRetryAfter the time
	// between two attempts.
	switchoverTimeout    = 10 * time.Second
	switchoverRetryAfter = 30 * time.Second
	// maxSwitchoverLag is the maximum lag of a replica for which a switchover begins.
	maxSwitchoverLag = 5 * time.Second
	// killClientsAfter is how long clients may prevent a server from becoming read-only.
	killClientsAfter = 2 * time.Second
	// stopTimeout is how long a stop may take to be reached.
	stopTimeout = 15 * time.Second
	// maxUnreceived is how many transactions a replica may have left to receive before commits wait for it.
	maxUnreceived = 1000
	// reloadInterval is the time between two reloads of a server's certificate. The kubelet needs a while to update
	// the files.
	reloadInterval = 2 * time.Minute
	// stoppedThreadTimeout is how long a thread of a replica may be stopped before the replica loses its clients.
	stoppedThreadTimeout = 3 * time.Second
	// stallTimeout is how long a server may commit or receive nothing although transactions wait, and connectTimeout how
	// long a replica may take to connect.
	stallTimeout, connectTimeout = 10 * time.Second, 5 * time.Second
	// actionBackoff is the time without actions on an instance after an action that did not help.
	actionBackoff = 2 * time.Second
	// refusalBackoff is the time before a replica that its source refuses repeatedly is started again.
	refusalBackoff = 30 * time.Second
	// endlessTimeout is the semi-sync timeout of the primary. It is so long that no commit stops waiting because of it.
	endlessTimeout = 24 * time.Hour
)

// These are the times until the next pass.
const (
	// immediately is not zero, so that the passes of other clusters in the queue come first.
	immediately = time.Millisecond
	// operationInterval is for the steps of an operation, suspicionInterval for a primary that may have failed.
	operationInterval = 100 * time.Millisecond
	suspicionInterval = 250 * time.Millisecond
	// recheckInterval is the first interval for an unreachable primary from which replicas still receive. They may not
	// have detected yet that it is down.
	recheckInterval = 20 * time.Millisecond
	// The intervals below are for a cluster that needs no action.
	degradedInterval = time.Second
	healthyInterval  = 10 * time.Second
	stoppedInterval  = 30 * time.Second
	// refusedInterval is for a cluster that starts once the reasons of the refusal are fixed.
	refusedInterval = 5 * time.Second
)
