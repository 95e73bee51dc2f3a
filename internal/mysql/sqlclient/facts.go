// SPDX-License-Identifier: Apache-2.0

package sqlclient

import "time"

// ServerFacts is what one server said of itself at one moment. GTID sets are in MySQL's own notation.
type ServerFacts struct {
	UUID, Version           string
	Executed, Purged        string
	ReadOnly, SuperReadOnly bool
	SemiSync                SemiSync
	// Connected are the UUIDs of the replicas that it serves.
	Connected []string
	// Pending says that a statement of a manager, of whichever, still runs in the server, and PendingFor for how many whole
	// seconds.
	Pending    bool
	PendingFor time.Duration
	// Replication is nil when the server has no replication channel.
	Replication *ReplicationFacts
	// Clone is the state of the last CLONE that this server received: "Not Started", "In Progress", "Completed" or
	// "Failed"; empty when there was none.
	Clone string
}

// SemiSync is how commits wait for replicas.
type SemiSync struct {
	// UsesOldNames is true for a server that has the plugins of MySQL 8.0, whose variables say master and slave.
	UsesOldNames    bool
	Source, Replica bool
	// WaitFor is how many replicas must have received a transaction before its commit returns.
	WaitFor int
	// Timeout is how long a commit waits for them.
	Timeout time.Duration
	// Waiting is how many commits wait now.
	Waiting int
}

// ReplicationFacts is the state of the channel from the source.
type ReplicationFacts struct {
	SourceHost, SourceUUID string
	AutoPosition           bool
	Retrieved              string
	// IO and SQL are true while the thread runs; Connecting is true while IO tries to reach the source.
	IO, Connecting, SQL bool
	// IOErrno and SQLErrno are 0 when the thread has not failed. The texts may hold data and stay in the server.
	IOErrno, SQLErrno int
	// Lag is how old the transaction is that is applied now; 0 when everything that was received is applied.
	Lag time.Duration
}
