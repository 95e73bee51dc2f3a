// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// NoInstance is the index of a missing instance.
const NoInstance = -1

// Observed is the input of Decide: the request, the stored state, and the state of the instances. The status is read
// first, then the replicas, and then the primary. The status may come from a cache, so an action requires that the API
// server still has the same version of the object.
type Observed struct {
	Now time.Time
	// IsBeingDeleted means that the cluster is being deleted; its servers are not observed. IsStopOverdue means that
	// the end time of a stop of clustering or of single instances has passed. The servers are then observed only if
	// Stop is set, to check the start.
	IsBeingDeleted, IsStopOverdue bool
	// IsOtherStopOverdue means that only stops of single instances are overdue, not the stop of clustering.
	IsOtherStopOverdue bool
	// Replicas is the number of instances that exist or should exist, including the primary.
	Replicas int
	// Offline means that no instance should run.
	Offline bool
	// Source and Restore are the operations that initialize the primary: the copy of an external server, and the
	// restore of a backup.
	Source, Restore OneTimeOperation
	// SourceProblem is the reason why the external server cannot be used. It is empty if the Secret of the server is
	// valid, or no external server is configured.
	SourceProblem string
	// Waits limit how long a primary may be unreachable before a failover.
	Waits FailoverWaits
	// MaxDelay is the maximum lag of a replica that serves clients. 0 means no limit.
	MaxDelay time.Duration
	// MaxDelayForDeletion is the maximum lag of a replica at which the primary's Pod may be deleted and a switchover
	// may begin. 0 means no limit.
	MaxDelayForDeletion time.Duration
	// StopAsked means that a stop of clustering is requested. StartForced means that clustering must start in spite of
	// all findings.
	StopAsked, StartForced bool
	// ReclonesErrant means that errant replicas are to be re-cloned.
	ReclonesErrant bool
	// HasLeftovers means that annotations of a finished stop still exist. They would apply to the next stop.
	HasLeftovers bool

	// Rotation is the requested rotation of the accounts' passwords, and its progress.
	Rotation PasswordRotation

	// Primary is the index of the primary in the status. It is NoInstance until the first primary is chosen.
	Primary int
	// GuaranteedAcks is the number of replicas that have every acknowledged commit, according to the status. It is nil
	// if it was never recorded.
	GuaranteedAcks *int
	// Stop is the record of a stop that was reached. It is nil while clustering is active or is being stopped.
	Stop *StopRecord
	// History is the manager's memory of earlier passes and of this pass.
	History History

	// Instances holds the instances by index.
	Instances []Instance
}

// NeedsReplicationWatch reports whether an instance is a replica that applies transactions. The manager has to detect
// immediately when such a replica stops applying, because the next regular pass may run much later. Servers of a
// stopped cluster are not watched.
func (o Observed) NeedsReplicationWatch(i int) bool {
	s := o.Instances[i]
	isActive := o.Primary != NoInstance && !o.Offline && !o.StopAsked && o.Stop == nil
	return isActive && i != o.Primary && s.Reachable && !s.Stopped && s.Channel.SQL == Running
}

// PasswordRotation is read only while a rotation is requested. Its state is stored in the cluster's Secret and in the
// servers.
type PasswordRotation struct {
	// Asked means that new passwords are requested. DiscardAsked means that the old passwords should be discarded. A
	// rotation that has begun is completed before old passwords are discarded.
	Asked, DiscardAsked bool
	// ID identifies the rotation that has begun. It is empty if no rotation has begun. IsPromoted means that the
	// cluster's Secret has no new passwords next to the current ones.
	ID         string
	IsPromoted bool
	// KnownSince is the time since which the Secret with the password files has contained the current passwords. It is
	// zero before that time, and while no discard is requested.
	KnownSince time.Time
}

// IsWanted reports whether new passwords, or the discarding of old ones, are requested.
func (r PasswordRotation) IsWanted() bool { return r.Asked || r.DiscardAsked }

// FailoverWaits define how long a primary may be unreachable before a failover.
type FailoverWaits struct {
	// Silent applies if the primary's Pod is ready, but too few replicas still receive from the primary. 0 means half a
	// second.
	Silent time.Duration
	// Unseen applies to a primary from which enough replicas still receive, so only the manager cannot reach it. 0
	// means no limit.
	Unseen time.Duration
}

// OneTimeOperation is an operation that happens once in the life of a cluster.
type OneTimeOperation struct{ Wanted, Done bool }

func (o OneTimeOperation) isOutstanding() bool { return o.Wanted && !o.Done }

// StopRecord is stored when a stop is reached. Until the stop ends, clustering then changes nothing in the cluster,
// even if the manager restarts.
type StopRecord struct {
	Since time.Time
	// Unfinished describes work that could not be finished in time. It is empty if no work is left.
	Unfinished string
}

// Instance is one instance of the cluster.
type Instance struct {
	// Host is the host name that replicas connect to, and Port the port.
	Host string
	Port int
	Pod  PodFacts
	// Stopped means that clustering is stopped for this instance, so no action may affect it.
	Stopped bool
	// KnownErrant is the result of the last comparison with the primary, from the status.
	KnownErrant bool
	// Discarded is the set of transactions that re-clones of the instance discard or have discarded, from the status.
	Discarded gtid.Set

	// Reachable means that the state of the server was read in this pass. Otherwise the server's fields are empty,
	// except ExpiredAccounts.
	Reachable bool
	// Refused means that the connection to the instance's port was refused, so its server is probably down.
	Refused bool
	// Pending means that a statement by which this or another manager changes the server still runs. PendingFor is the
	// statement's duration so far.
	Pending    bool
	PendingFor time.Duration

	UUID string
	// Series is the release series of the server's version, such as 8.4.
	Series ReleaseSeries
	// ReadOnly and SuperReadOnly are the server's variables. With SuperReadOnly, even administrators cannot write.
	ReadOnly, SuperReadOnly bool
	// Executed and Purged are read after SuperReadOnly and Pending, so Executed contains every commit of the clients of
	// a read-only server.
	Executed, Purged gtid.Set
	// Owned is the set of transactions that are being committed. It is read before Executed, so each transaction is in
	// at least one of the sets.
	Owned    gtid.Set
	SemiSync SemiSync
	// Weakened lists the settings with which acknowledged transactions may be lost. The list is sorted.
	Weakened []string
	// HasOldAccounts means that the primary's accounts do not match the current list, or that their passwords can
	// expire or have expired.
	HasOldAccounts bool
	// ExpiredAccounts lists the accounts whose passwords have expired. It is read in a reachable primary, up to a
	// minute late. For an instance that rejects the manager's expired password, it contains only the manager's account.
	ExpiredAccounts []string
	// Rotation is the ID of the rotation that gave the accounts a second password. It is empty while each account has
	// one password, or no rotation is requested.
	Rotation string
	// TLSSecret is the name of the Secret with the certificate of the Pod. It is empty if the Pod has no certificate or
	// does not exist.
	TLSSecret string
	// CertificateIsAging means that the server presents a certificate that should have been renewed.
	CertificateIsAging bool
	// Connected lists the UUIDs of the connected replicas.
	Connected []string
	Channel   ReplicationChannel
	Clone     CloneState
	// IsUnwatched means that the statement that watches replication has ended, and that this pass does not start
	// another one.
	IsUnwatched bool
}

// PodFacts describes the instance's Pod.
type PodFacts struct {
	Exists, Ready, Terminating bool
	// Demote means that another primary is requested. Reclone means that a re-clone is requested.
	Demote, Reclone bool
	// Protected means that the Pod has the annotation that prevents its deletion.
	Protected bool
	Role      PodRole
}

// PodRole is the value of the Pod's label that Services select.
type PodRole string

// These are the roles in the label of a Pod.
const (
	RoleNone    PodRole = ""
	RolePrimary PodRole = "primary"
	RoleReplica PodRole = "replica"
)

// ReleaseSeries is a series of MySQL versions. The series of a replica must not be older than that of its source.
type ReleaseSeries struct{ Major, Minor int }

func (s ReleaseSeries) isOlderThan(other ReleaseSeries) bool {
	return s.Major < other.Major || s.Major == other.Major && s.Minor < other.Minor
}

// SemiSync is the state of semi-synchronous replication in a server.
type SemiSync struct {
	Source, Replica bool
	// ReplicaActive means that the IO thread acknowledges. A thread that connected before Replica was set does not.
	ReplicaActive bool
	// WaitFor is the number of replicas that a commit waits for, and Timeout the maximum duration of the wait.
	WaitFor int
	Timeout time.Duration
	// Waiting is the number of sessions that wait for a replica now.
	Waiting int
	// HasGivenUp means that commits do not wait for replicas although Source is set, because a wait timed out or too
	// few replicas were connected.
	HasGivenUp bool
}

// awaited returns the number of replicas that the settings make a commit wait for.
func (s SemiSync) awaited() int {
	if !s.Source {
		return 0
	}
	return s.WaitFor
}

// ReplicationChannel is the replication channel of an instance.
type ReplicationChannel struct {
	// Present means that SHOW REPLICA STATUS returns a row.
	Present    bool
	SourceHost string
	SourcePort int
	IO, SQL    ThreadState
	// IOErrno and SQLErrno are the last errors of the threads. Their texts may contain data and are not read.
	IOErrno, SQLErrno int
	// Lag is the age of the transaction that is being applied. It is negative when unknown.
	Lag time.Duration
	// HasOldPassword means that the channel logs in with a password that is not the newest. It is set only during a
	// rotation.
	HasOldPassword bool
	// IsVerified means that the channel accepts only a source with a certificate of the cluster.
	IsVerified bool
	// IsOutside means that the channel replicates from the external server, with the address and password of the
	// Secret.
	IsOutside bool
	// HeardAgo is the time since the source last sent anything, such as a heartbeat. It is negative when unknown.
	HeardAgo time.Duration
	// Retrieved is the set of transactions that the relay log contains or has contained.
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
	// By default, if its Pod is ready but too few replicas receive from it, a primary counts as down after
	// primaryDownMisses passes without a response, over at least primaryDownAfter.
	primaryDownAfter  = 500 * time.Millisecond
	primaryDownMisses = 2
	// heardTimeout is the maximum age of the last packet from the primary at which a replica counts as receiving from
	// it. An idle primary sends a heartbeat every half second.
	heardTimeout = 3 * time.Second
	// clusterStartTimeout is how long a cluster that has just started waits for its previous primary.
	clusterStartTimeout = 30 * time.Second
	// switchoverTimeout limits how long a primary may be read-only for a switchover. switchoverRetryAfter is the time
	// between two attempts.
	switchoverTimeout    = 10 * time.Second
	switchoverRetryAfter = 30 * time.Second
	// maxSwitchoverLag is the maximum lag of a replica at which a switchover begins.
	maxSwitchoverLag = 5 * time.Second
	// killClientsAfter is the time after which clients that keep a server from becoming read-only are disconnected, and
	// a statement that hangs in the primary is cancelled.
	killClientsAfter = 2 * time.Second
	// stopTimeout is how long a stop may take to be reached.
	stopTimeout = 15 * time.Second
	// maxUnreceived is the maximum number of transactions that a replica may still have to receive for commits to wait
	// for it.
	maxUnreceived = 1000
	// reloadInterval is the time between two reloads of a server's certificate. The kubelet needs a while to update
	// the files.
	reloadInterval = 2 * time.Minute
	// stoppedThreadTimeout is how long a replica's thread may be stopped before the replica loses its label.
	stoppedThreadTimeout = 3 * time.Second
	// stallTimeout limits how long a server may commit or receive nothing although transactions wait. connectTimeout
	// limits how long a replica may take to connect.
	stallTimeout, connectTimeout = 10 * time.Second, 5 * time.Second
	// manualStopGrace is how long the SQL thread of a replica stays stopped that an administrator has stopped.
	manualStopGrace = 5 * time.Second
	// actionBackoff is the time without actions on an instance after an action that failed or had no effect.
	actionBackoff = 2 * time.Second
	// refusalBackoff is the time until the next attempt after a source has refused a replica repeatedly, or after a
	// copy of the external server has failed.
	refusalBackoff = 30 * time.Second
	// endlessTimeout is the semi-sync timeout of the primary. It is long enough that no commit stops waiting because of
	// it.
	endlessTimeout = 24 * time.Hour
)

// These are the intervals until the next pass.
const (
	// immediately is greater than zero, so passes of other clusters in the queue run first.
	immediately = time.Millisecond
	// operationInterval applies to the steps of an operation, and suspicionInterval to a primary that may have failed.
	operationInterval = 100 * time.Millisecond
	suspicionInterval = 250 * time.Millisecond
	// recheckInterval is the first interval for an unreachable primary from which replicas still receive. They may not
	// have detected the failure yet.
	recheckInterval = 20 * time.Millisecond
	// The intervals below apply to a cluster that needs no action.
	degradedInterval = time.Second
	healthyInterval  = 10 * time.Second
	stoppedInterval  = 30 * time.Second
	// refusedInterval applies to a cluster that will start once the reasons for the refusal are fixed.
	refusedInterval = 5 * time.Second
)
