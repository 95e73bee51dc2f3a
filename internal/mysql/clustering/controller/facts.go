// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
)

// From what the API server and the servers say to what the decision looks at.

// observeObject is what the object itself says.
func observeObject(cluster *mocov1beta2.MySQLCluster, now time.Time) clustering.Observed {
	spec, status := cluster.Spec, cluster.Status
	_, isOverdue := stopOverdueDuration(cluster, now)
	return clustering.Observed{
		IsBeingDeleted: !cluster.DeletionTimestamp.IsZero(), IsStopOverdue: isOverdue,
		Replicas: int(spec.Replicas), Offline: spec.Offline,
		Source:    clustering.OneTimeOperation{Wanted: spec.ReplicationSourceSecretName != nil, Done: status.Cloned},
		Restore:   clustering.OneTimeOperation{Wanted: spec.Restore != nil, Done: status.RestoredTime != nil},
		StopAsked: cluster.ClusteringStopped(), Stop: stopRecord(cluster), MaxDelay: maxDelay(cluster),
		Primary: primaryOf(cluster), Instances: make([]clustering.Instance, spec.Replicas),
	}
}

// maxDelay is how far behind a replica may be for clients.
func maxDelay(cluster *mocov1beta2.MySQLCluster) time.Duration {
	if cluster.Spec.MaxDelaySeconds == nil {
		return 0
	}
	return time.Duration(*cluster.Spec.MaxDelaySeconds) * time.Second
}

// primaryOf is the primary that was chosen.
func primaryOf(cluster *mocov1beta2.MySQLCluster) int {
	if i, chosen := cluster.Status.Primary(); chosen {
		return i
	}
	return clustering.NoInstance
}

func podFacts(pod *corev1.Pod) clustering.PodFacts {
	if pod == nil {
		return clustering.PodFacts{}
	}
	return clustering.PodFacts{
		Exists: true, Ready: isReady(pod), Terminating: !pod.DeletionTimestamp.IsZero(),
		Demote: pod.Annotations[mocov1beta2.DemoteAnnotation] == "true",
		Role:   clustering.PodRole(pod.Labels[mocov1beta2.RoleLabel]),
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// setServerFacts fills in what a server said.
func setServerFacts(s *clustering.Instance, f sqlclient.ServerFacts) error {
	var sets [3]gtid.Set
	texts := [3]string{f.Executed, f.Purged}
	if f.Replication != nil {
		texts[2] = f.Replication.Retrieved
	}
	for i, text := range texts {
		set, err := gtid.Parse(text)
		if err != nil {
			return fmt.Errorf("read a GTID set: %w", err)
		}
		sets[i] = set
	}
	s.Reachable, s.UUID, s.Series = true, f.UUID, parseSeries(f.Version)
	s.Pending, s.PendingFor = f.Pending, f.PendingFor
	s.ReadOnly, s.SuperReadOnly = f.ReadOnly, f.SuperReadOnly
	s.Executed, s.Purged = sets[0], sets[1]
	s.SemiSync = clustering.SemiSync{
		Source: f.SemiSync.Source, Replica: f.SemiSync.Replica,
		WaitFor: f.SemiSync.WaitFor, Timeout: f.SemiSync.Timeout, Waiting: f.SemiSync.Waiting,
	}
	s.Connected = f.Connected
	s.Clone = map[string]clustering.CloneState{
		"In Progress": clustering.Cloning, "Completed": clustering.Cloned, "Failed": clustering.CloneFailed,
	}[f.Clone]
	if f.Replication != nil {
		s.Channel = parseChannel(*f.Replication, sets[2])
	}
	return nil
}

func parseChannel(r sqlclient.ReplicationFacts, retrieved gtid.Set) clustering.ReplicationChannel {
	c := clustering.ReplicationChannel{
		Present: true, SourceHost: r.SourceHost, IOErrno: r.IOErrno, SQLErrno: r.SQLErrno, Lag: r.Lag, Retrieved: retrieved,
	}
	switch {
	case r.IO:
		c.IO = clustering.Running
	case r.Connecting:
		c.IO = clustering.Connecting
	}
	if r.SQL {
		c.SQL = clustering.Running
	}
	if !r.IO || !r.SQL { // Without both threads there is no measure of what it has yet to receive or apply.
		c.Lag = -1
	}
	return c
}

// setRunningAction adds what this manager itself still does there, which the server does not show at every moment.
func setRunningAction(s *clustering.Instance, action *asyncAction, now time.Time) {
	if _, isClone := action.do.(clustering.CloneFrom); isClone {
		s.Clone = clustering.Cloning // The server may not have begun it.
		return
	}
	s.Pending, s.PendingFor = true, max(s.PendingFor, now.Sub(action.startedAt))
}

// parseSeries returns the release series of a version such as 8.4.8-log.
func parseSeries(version string) clustering.ReleaseSeries {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var s clustering.ReleaseSeries
	s.Major, _ = strconv.Atoi(major) // A version that is no number is the oldest.
	s.Minor, _ = strconv.Atoi(minor)
	return s
}
