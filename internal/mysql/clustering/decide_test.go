// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"iter"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// healthyCluster returns a healthy cluster of three instances, with instance 0 as the primary, after applying the
// changes.
func healthyCluster(changes ...func(*Observed)) Observed {
	o := Observed{Now: modelTime(), Replicas: 3, GuaranteedAcks: new(1), History: History{Instances: make([]InstanceHistory, 3)}}
	for i := range 3 {
		o.Instances = append(o.Instances, Instance{
			Host: host(i), Reachable: true, UUID: uuid(i), Series: ReleaseSeries{8, 4}, ReadOnly: true, SuperReadOnly: true,
			Pod: PodFacts{Exists: true, Ready: true, Role: RoleReplica}, Executed: parseTestSet("0:1-9"), SemiSync: SemiSync{Replica: true, ReplicaActive: true},
			Channel: ReplicationChannel{Present: true, SourceHost: host(0), IO: Running, SQL: Running, HeardAgo: -1},
		})
	}
	p := &o.Instances[0]
	p.ReadOnly, p.SuperReadOnly, p.Pod.Role, p.Channel = false, false, RolePrimary, ReplicationChannel{}
	p.SemiSync = SemiSync{Source: true, WaitFor: 1, Timeout: endlessTimeout}
	p.Connected = []string{uuid(1), uuid(2)}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// parseTestSet parses GTID sets in which the index of a server stands for its UUID.
func parseTestSet(text string) gtid.Set {
	var all gtid.Set
	for part := range splitTestSet(text) {
		s, err := gtid.Parse(part)
		if err != nil {
			panic(err)
		}
		all = all.Union(s)
	}
	return all
}

func withInstance(i int, changes ...func(*Instance)) func(*Observed) {
	return func(o *Observed) {
		for _, change := range changes {
			change(&o.Instances[i])
		}
	}
}

func podNotReady(s *Instance) {
	*s = Instance{Host: s.Host, Pod: PodFacts{Exists: true, Role: s.Pod.Role}, KnownErrant: s.KnownErrant}
}

func doesNotAnswer(s *Instance)                 { podNotReady(s); s.Pod.Ready = true }
func refusesConnections(s *Instance)            { doesNotAnswer(s); s.Refused = true }
func expired(s *Instance)                       { s.HasOldAccounts, s.ExpiredAccounts = true, []string{"moco-agent"} }
func readOnly(s *Instance)                      { s.ReadOnly, s.SuperReadOnly = true, true }
func writable(s *Instance)                      { s.ReadOnly, s.SuperReadOnly = false, false }
func askedToStepDown(s *Instance)               { s.Pod.Demote = true }
func terminating(s *Instance)                   { s.Pod.Terminating = true }
func stoppedInstance(s *Instance)               { s.Stopped = true }
func laggingBy(d time.Duration) func(*Instance) { return func(s *Instance) { s.Channel.Lag = d } }

// maxDelay sets the API's default for the maximum replication delay.
func maxDelay(o *Observed) { o.MaxDelay = time.Minute }

func deletionLimit(o *Observed) { o.MaxDelayForDeletion = 30 * time.Second }
func protected(s *Instance)     { s.Pod.Protected = true }

func ioError(errno int) func(*Instance) {
	return func(s *Instance) { s.Channel.IOErrno = errno }
}
func connecting(s *Instance) { s.Channel.IO = Connecting }
func unready(s *Instance)    { s.Pod.Ready = false }
func ioStopped(s *Instance)  { s.Channel.IO = Stopped }
func sqlStopped(s *Instance) { s.Channel.SQL = Stopped }
func sqlFailed(s *Instance)  { s.Channel.SQL, s.Channel.SQLErrno = Stopped, 1062 }
func rotating(id string, promoted bool) func(*Observed) {
	return func(o *Observed) { o.Rotation = PasswordRotation{Asked: true, ID: id, IsPromoted: promoted} }
}

// discarding requests that the old passwords be discarded. The mounted files have contained the new passwords for the
// given time; 0 means that they do not contain them yet.
func discarding(known time.Duration) func(*Observed) {
	return func(o *Observed) {
		o.Rotation = PasswordRotation{DiscardAsked: true, ID: "r", IsPromoted: true}
		if known > 0 {
			o.Rotation.KnownSince = o.Now.Add(-known)
		}
	}
}

func knowing(i int) func(*Observed) {
	return withInstance(i, func(s *Instance) { s.Rotation = "r" })
}

func knowingAll() func(*Observed) {
	return func(o *Observed) {
		for i := range o.Instances {
			o.Instances[i].Rotation = "r"
		}
	}
}

func certified(i int) func(*Observed) { return certifiedBy(i, "tls") }

func certifiedBy(i int, secret string) func(*Observed) {
	return withInstance(i, func(s *Instance) { s.TLSSecret = secret })
}

func verified(s *Instance) { s.Channel.IsVerified = true }

func withoutChannel(s *Instance) { s.Channel = ReplicationChannel{} }
func serverRestarted(s *Instance) {
	readOnly(s)
	s.SemiSync = SemiSync{}
	s.Channel.IO, s.Channel.SQL = Stopped, Stopped
}

func withoutData(s *Instance) {
	s.Executed, s.Purged, s.Channel = gtid.Set{}, gtid.Set{}, ReplicationChannel{}
}
func awaitsNobody(s *Instance)     { s.SemiSync = SemiSync{} }
func withoutPod(s *Instance)       { *s = Instance{Host: s.Host} }
func laggingByAMinute(s *Instance) { s.Channel.Lag = time.Minute }
func unlabelled(s *Instance)       { s.Pod.Role = RoleNone }
func executed(text string) func(*Instance) {
	return func(s *Instance) { s.Executed = parseTestSet(text) }
}

// withUnappliedRelayLog gives the instance a received transaction that it has not applied.
func withUnappliedRelayLog(s *Instance) { s.Channel.Retrieved = parseTestSet("0:10") }

func receivedNinth(s *Instance) { s.Channel.Retrieved = parseTestSet("0:9") }

func statementPending(since time.Duration) func(*Instance) {
	return func(s *Instance) { s.Pending, s.PendingFor = true, since }
}

func commitWaiting(s *Instance) { s.SemiSync.Waiting, s.Owned = 1, parseTestSet("0:10") }

func stopAsked(o *Observed) { o.StopAsked = true; o.History.StopAskedSince = o.Now }

func unwatched(s *Instance) { s.IsUnwatched = true }

func receivesFromOtherPort(s *Instance) { s.Channel.SourcePort++ }

func replicatesFrom(source int) func(*Instance) {
	return func(s *Instance) { s.Channel.SourceHost = host(source) }
}

func switchoverGaveUp(o *Observed) { o.History.GaveUpAt = o.Now.Add(-time.Second) }

func actionFailed(i int) func(*Observed) { return actionFailedBefore(i, time.Second) }

func actionFailedBefore(i int, ago time.Duration) func(*Observed) {
	return func(o *Observed) { o.History.Instances[i].FailedAt = o.Now.Add(-ago) }
}

// promotedInStatus is the state right after instance 1 was recorded as the primary in the status.
func promotedInStatus(o *Observed) {
	o.Primary = 1
	readOnly(&o.Instances[0])
}

// promotedAndConfigured is the state after a switchover to instance 1, right before it is made writable.
func promotedAndConfigured(o *Observed) {
	promotedInStatus(o)
	o.Instances[0].SemiSync = SemiSync{Replica: true, ReplicaActive: true}
	o.Instances[0].Channel = ReplicationChannel{Present: true, SourceHost: host(1), IO: Running, SQL: Running}
	o.Instances[0].Pod.Role = RoleNone
	p := &o.Instances[1]
	p.Channel, p.SemiSync = ReplicationChannel{}, SemiSync{Source: true, WaitFor: 1, Timeout: endlessTimeout}
	o.Instances[2].Channel.SourceHost = host(1)
}

func newCluster(o *Observed) {
	o.Primary = NoInstance
	for i := range o.Instances {
		s := &o.Instances[i]
		withoutData(s)
		readOnly(s)
		s.SemiSync, s.Pod.Role = SemiSync{}, RoleNone
	}
}

func TestDecide(t *testing.T) {
	type decision struct {
		Rule  string
		Do    Action
		State ClusterState
	}
	nothing := Nothing{}
	hidden := decision{"hide a replica with old data", SetRole{1, RoleNone}, StateDegraded}
	copying := decision{"copying from the external server", nothing, StateCloning}
	settledAs := func(s ClusterState) decision { return decision{"settled", nothing, s} }
	used := map[string]bool{}
	for name, row := range map[string]struct {
		in   Observed
		want decision
	}{
		"a healthy cluster needs no action":                                                                    {healthyCluster(), settledAs(StateHealthy)},
		"a primary that does not answer in one pass has not failed":                                            {healthyCluster(withInstance(0, doesNotAnswer)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a primary that refuses connections and lost a replica's connection has failed":                        {healthyCluster(withInstance(0, refusesConnections), withInstance(1, connecting)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a primary that refuses only the manager has not failed":                                               {healthyCluster(withInstance(0, refusesConnections), hearThePrimary, missedLooks(99, time.Hour)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a primary that refuses a connection has not failed while its replicas are connected":                  {healthyCluster(withInstance(0, refusesConnections)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a primary has failed if only one of its four replicas still receives from it":                         {healthyCluster(fiveInstances, withInstance(0, doesNotAnswer), withInstance(1, hears), missedLooks(2, primaryDownAfter)), decision{"fence for a failover", StopIO{[]int{1, 2, 3, 4}}, StateFailed}},
		"an unreachable primary with connected replicas has not failed if no limit is set":                     {healthyCluster(withInstance(0, doesNotAnswer), hearThePrimary, missedLooks(99, time.Hour)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a primary with connected replicas has not failed, regardless of its Pod's state":                      {healthyCluster(withInstance(0, podNotReady), hearThePrimary), decision{"the primary does not answer", nothing, StateIncomplete}},
		"an unreachable primary that replicas receive from has failed after the limit":                         {healthyCluster(withInstance(0, doesNotAnswer), hearThePrimary, missedLooks(99, time.Minute), unseenLimit), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a primary that replicas last received from three seconds ago has failed":                              {healthyCluster(withInstance(0, doesNotAnswer), hearThePrimary, withInstance(1, heardAgo(heardTimeout+1)), withInstance(2, heardAgo(heardTimeout+1)), missedLooks(2, primaryDownAfter)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a primary that was down counts as down while its replicas are fenced":                                 {healthyCluster(withInstance(0, refusesConnections), withInstance(1, ioStopped), withInstance(2, ioStopped), wasDown), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"the failover waits for a silent primary for the configured time":                                      {healthyCluster(withInstance(0, doesNotAnswer), missedLooks(9, 5*time.Second), func(o *Observed) { o.Waits.Silent = 5*time.Second + 1 }), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a primary whose pod is not ready has failed":                                                          {healthyCluster(withInstance(0, podNotReady)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a primary without an answer in two passes of half a second has failed":                                {healthyCluster(withInstance(0, doesNotAnswer), missedLooks(2, primaryDownAfter)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"two passes without an answer within half a second do not count as a failure":                          {healthyCluster(withInstance(0, doesNotAnswer), missedLooks(2, primaryDownAfter-1)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a failover fences only replicas that are not fenced yet":                                              {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped)), decision{"fence for a failover", StopIO{[]int{2}}, StateFailed}},
		"a replica with a pending statement of the manager is not fenced yet":                                  {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, statementPending(0)), withInstance(2, ioStopped)), decision{"fence for a failover", StopIO{[]int{1}}, StateFailed}},
		"one replica alone is not a quorum":                                                                    {healthyCluster(withInstance(0, podNotReady), withInstance(2, podNotReady)), decision{"primary has failed", nothing, StateLost}},
		"an errant replica does not count for the quorum":                                                      {healthyCluster(withInstance(0, podNotReady), withInstance(2, ioStopped, unlabelled, func(s *Instance) { s.KnownErrant = true })), decision{"primary has failed", nothing, StateLost}},
		"an empty replica does not count for the quorum":                                                       {healthyCluster(withInstance(0, podNotReady), withInstance(2, withoutData)), decision{"primary has failed", nothing, StateLost}},
		"an empty cluster does not fail over":                                                                  {healthyCluster(withInstance(0, podNotReady), withInstance(1, withoutData), withInstance(2, withoutData)), decision{"primary has failed", nothing, StateLost}},
		"the first of equal replicas is promoted":                                                              {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped), withInstance(2, ioStopped)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"the replica with the most transactions is promoted":                                                   {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped), withInstance(2, ioStopped, executed("0:1-10"))), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"a failover waits for received transactions to be applied":                                             {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped), withInstance(2, ioStopped, withUnappliedRelayLog)), decision{"primary has failed", nothing, StateFailed}},
		"a replica that has applied everything is promoted before one that has not":                            {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, withUnappliedRelayLog), withInstance(2, ioStopped, executed("0:1-10"))), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"a replica whose pod is terminating is promoted last":                                                  {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, terminating), withInstance(2, ioStopped)), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"a replica of the oldest release series is promoted first":                                             {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, func(s *Instance) { s.Series = ReleaseSeries{9, 7} }), withInstance(2, ioStopped)), decision{"fail over", PromoteInStatus{2, 0}, StateFailed}},
		"the stopped SQL thread of the failover candidate is started":                                          {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, withUnappliedRelayLog, sqlStopped), withInstance(2, ioStopped)), decision{"failover candidate has its SQL thread stopped", RestartSQL{1}, StateFailed}},
		"the failed SQL thread of the failover candidate is not started":                                       {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, withUnappliedRelayLog, sqlFailed), withInstance(2, ioStopped)), decision{"primary has failed", nothing, StateFailed}},
		"no replica is promoted when each has transactions that the others lack":                               {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, executed("0:1-9,1:1")), withInstance(2, ioStopped, executed("0:1-10"))), decision{"primary has failed", nothing, StateFailed}},
		"a fence is withdrawn when too few replicas are reachable for a failover":                              {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped), withInstance(2, podNotReady)), decision{"withdraw the fence", StartIO{1}, StateLost}},
		"a fence of a replica that lost its connection is withdrawn":                                           {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, ioError(2003)), withInstance(2, podNotReady)), decision{"withdraw the fence", StartIO{1}, StateLost}},
		"the IO thread of a fenced replica that its source rejected is not started again":                      {healthyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped, ioError(1236)), withInstance(2, podNotReady)), decision{"primary has failed", nothing, StateLost}},
		"a primary that lost its volume has failed":                                                            {healthyCluster(withInstance(0, serverRestarted, withoutData)), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a primary that lost its last transactions has failed":                                                 {healthyCluster(withInstance(0, serverRestarted, withoutChannel, executed("0:1-8"))), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a primary that lost transactions that relay logs contain has failed":                                  {healthyCluster(withInstance(0, serverRestarted, withoutChannel, executed("0:1-8")), withInstance(1, executed("0:1-8"), receivedNinth), withInstance(2, executed("0:1-8"))), decision{"fence for a failover", StopIO{[]int{1, 2}}, StateFailed}},
		"a failover waits for the primary if all servers have just started":                                    {healthyCluster(withInstance(0, podNotReady), withInstance(1, serverRestarted), withInstance(2, serverRestarted), missedLooks(9, time.Second)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a failover waits for the primary for at most thirty seconds if all servers have just started":         {healthyCluster(withInstance(0, podNotReady), withInstance(1, serverRestarted), withInstance(2, serverRestarted), missedLooks(9, clusterStartTimeout)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a failover waits for a hanging primary only until the stall timeout if all servers have just started": {healthyCluster(withInstance(0, doesNotAnswer), withInstance(1, serverRestarted), withInstance(2, serverRestarted), missedLooks(9, stallTimeout)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a failover does not wait for a terminating primary if all servers have just started":                  {healthyCluster(withInstance(0, podNotReady, terminating), withInstance(1, serverRestarted), withInstance(2, serverRestarted)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a primary is not replaced while clustering is stopped for its instance":                               {healthyCluster(withInstance(0, podNotReady, stoppedInstance)), decision{"the primary does not answer", nothing, StateIncomplete}},
		"a replica does not count for the quorum while clustering is stopped for its instance":                 {healthyCluster(withInstance(0, podNotReady), withInstance(1, stoppedInstance)), decision{"primary has failed", nothing, StateLost}},
		"a single instance that failed is not replaced":                                                        {healthyCluster(singleInstance, withInstance(0, podNotReady)), decision{"primary has failed", nothing, StateLost}},
		"a failed fence of a replica is repeated only after the back-off":                                      {healthyCluster(withInstance(0, podNotReady), actionFailed(1), actionFailed(2)), decision{"primary has failed", nothing, StateFailed}},

		"a primary with a switchover request becomes read-only":                                   {healthyCluster(withInstance(0, askedToStepDown)), decision{"begin a switchover", SetReadOnly{0}, StateHealthy}},
		"a primary whose pod is terminating becomes read-only":                                    {healthyCluster(withInstance(0, terminating)), decision{"begin a switchover", SetReadOnly{0}, StateHealthy}},
		"a switchover does not begin while all replicas lag":                                      {healthyCluster(withInstance(0, askedToStepDown), withInstance(1, laggingByAMinute), withInstance(2, laggingByAMinute)), settledAs(StateHealthy)},
		"a switchover does not begin soon after one that gave up":                                 {healthyCluster(withInstance(0, askedToStepDown), switchoverGaveUp), settledAs(StateHealthy)},
		"a primary whose clustering is stopped does not step down":                                {healthyCluster(withInstance(0, askedToStepDown, stoppedInstance)), settledAs(StateHealthy)},
		"a read-only primary waits for the switchover target to catch up":                         {healthyCluster(withInstance(0, askedToStepDown, readOnly, executed("0:1-12"))), decision{"the switchover target is catching up", nothing, StateIncomplete}},
		"a switchover promotes a replica that has all transactions":                               {healthyCluster(withInstance(0, askedToStepDown, readOnly, executed("0:1-12")), withInstance(2, executed("0:1-12"))), decision{"switch over", PromoteInStatus{2, 0}, StateIncomplete}},
		"no replica is promoted while commits wait in the primary":                                {healthyCluster(withInstance(0, askedToStepDown, readOnly, commitWaiting)), decision{"the switchover target is catching up", nothing, StateIncomplete}},
		"a primary without a switchover target is made writable again":                            {healthyCluster(withInstance(0, askedToStepDown, readOnly, executed("0:1-12")), withInstance(1, sqlFailed), withInstance(2, sqlFailed)), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"a primary with an overdue switchover is made writable again":                             {healthyCluster(withInstance(0, askedToStepDown, readOnly, executed("0:1-12")), switchoverGaveUp), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"the statement that sets read_only gets time before sessions are killed":                  {healthyCluster(withInstance(0, askedToStepDown, statementPending(killClientsAfter-1))), decision{"a statement runs in the primary", nothing, StateHealthy}},
		"client sessions are killed while the server reports only super_read_only":                {healthyCluster(withInstance(0, askedToStepDown, statementPending(killClientsAfter), func(s *Instance) { s.SuperReadOnly = true })), decision{"end the clients' sessions", KillConnections{0, false}, StateHealthy}},
		"client sessions are killed when the primary does not become read-only":                   {healthyCluster(withInstance(0, askedToStepDown, statementPending(killClientsAfter))), decision{"end the clients' sessions", KillConnections{0, false}, StateHealthy}},
		"the statement that sets read_only is cancelled when the switchover gives up":             {healthyCluster(withInstance(0, askedToStepDown, statementPending(switchoverTimeout)), switchoverGaveUp), decision{"cancel a hanging statement", CancelPending{0}, StateHealthy}},
		"commits that no replica can acknowledge may wait until the stall timeout":                {healthyCluster(withInstance(0, commitWaiting), replicasCannotLogIn(stallTimeout-1)), decision{"settled", nothing, StateIncomplete}},
		"a primary with commits that no replica can acknowledge becomes read-only":                {healthyCluster(withInstance(0, commitWaiting), replicasCannotLogIn(stallTimeout)), decision{"commits wait for replicas that cannot connect", SetReadOnly{0}, StateIncomplete}},
		"a primary with stalled commits and a pending statement of the manager becomes read-only": {healthyCluster(withInstance(0, commitWaiting, statementPending(stallTimeout)), replicasCannotLogIn(stallTimeout)), decision{"commits wait for replicas that cannot connect", SetReadOnly{0}, StateIncomplete}},
		"clients whose commits no replica can acknowledge get time to finish":                     {healthyCluster(withInstance(0, commitWaiting, superReadOnly, statementPending(killClientsAfter-1)), replicasCannotLogIn(stallTimeout)), decision{"a statement runs in the primary", nothing, StateIncomplete}},
		"sessions whose commits no replica can acknowledge are killed":                            {healthyCluster(withInstance(0, commitWaiting, superReadOnly, statementPending(killClientsAfter)), replicasCannotLogIn(stallTimeout)), decision{"commits wait for replicas that cannot connect", KillConnections{0, true}, StateIncomplete}},
		"a primary whose commits wait for empty replicas becomes read-only":                       {healthyCluster(withInstance(0, commitWaiting), stalledFor(0, stallTimeout), withInstance(1, withoutData), withInstance(2, withoutData)), decision{"commits wait for replicas that cannot connect", SetReadOnly{0}, StateIncomplete}},
		"commits that wait for empty replicas may wait until the stall timeout":                   {healthyCluster(withInstance(0, commitWaiting), stalledFor(0, stallTimeout-1), withInstance(1, withoutData), withInstance(2, podNotReady)), decision{"clone a replica", CloneFrom{1, 0}, StateIncomplete}},
		"stalled commits that a replica can acknowledge leave the primary writable":               {healthyCluster(withInstance(0, commitWaiting), stalledFor(0, stallTimeout), withInstance(1, withoutData)), decision{"clone a replica", CloneFrom{1, 0}, StateIncomplete}},
		"a stop is reached even if no replica can acknowledge the commits":                        {healthyCluster(stopAsked, withInstance(0, commitWaiting), replicasCannotLogIn(stallTimeout)), decision{"clustering has stopped", nothing, StateIncomplete}},
		"a primary with stalled commits is not in service":                                        {healthyCluster(withInstance(0, commitWaiting), stalledFor(0, stallTimeout)), settledAs(StateIncomplete)},
		"a primary whose commits wait for less than the stall timeout is in service":              {healthyCluster(withInstance(0, commitWaiting), stalledFor(0, stallTimeout-1)), settledAs(StateHealthy)},
		"a replica that is connected and receives nothing is unhealthy":                           {healthyCluster(stalledFor(1, stallTimeout)), settledAs(StateDegraded)},
		"a replica that receives nothing for too long loses its label":                            {healthyCluster(stalledFor(1, time.Minute+1), maxDelay), hidden},
		"a replica that connected before semi-sync was enabled is configured":                     {healthyCluster(withInstance(1, func(s *Instance) { s.SemiSync.ReplicaActive = false })), decision{"configure a replica", ConfigureReplica{1, 0}, StateDegraded}},
		"the Pod of a primary is protected while a replica lags too far":                          {healthyCluster(deletionLimit, withInstance(2, laggingByAMinute)), decision{"protect the primary's Pod", SetProtection{0, true}, StateHealthy}},
		"a protected Pod of a primary stays protected while a replica lags":                       {healthyCluster(deletionLimit, withInstance(0, protected), withInstance(2, laggingByAMinute)), settledAs(StateHealthy)},
		"a lagging replica does not protect the primary's Pod if no limit is set":                 {healthyCluster(withInstance(2, laggingByAMinute)), settledAs(StateHealthy)},
		"a lag equal to the limit does not protect the primary's Pod":                             {healthyCluster(deletionLimit, withInstance(2, laggingBy(30*time.Second))), settledAs(StateHealthy)},
		"the protection of the primary's Pod ends when no replica lags":                           {healthyCluster(deletionLimit, withInstance(0, protected)), decision{"end the protection of a Pod", SetProtection{0, false}, StateHealthy}},
		"the protection of the primary's Pod ends when the limit is removed":                      {healthyCluster(withInstance(0, protected), withInstance(2, laggingByAMinute)), decision{"end the protection of a Pod", SetProtection{0, false}, StateHealthy}},
		"the protection of a replica's Pod ends":                                                  {healthyCluster(deletionLimit, withInstance(0, protected), withInstance(1, protected), withInstance(2, laggingByAMinute)), decision{"end the protection of a Pod", SetProtection{1, false}, StateHealthy}},
		"a switchover does not begin while one replica lags too far":                              {healthyCluster(deletionLimit, withInstance(0, askedToStepDown, protected), withInstance(2, laggingByAMinute)), settledAs(StateHealthy)},
		"a terminating primary is switched over even if a replica lags too far":                   {healthyCluster(deletionLimit, withInstance(0, terminating, protected), withInstance(2, laggingByAMinute)), decision{"begin a switchover", SetReadOnly{0}, StateHealthy}},
		"a completed demotion request is cleared":                                                 {healthyCluster(withInstance(1, askedToStepDown)), decision{"clear a demotion request", ClearDemote{1}, StateHealthy}},

		"the old primary loses its label first":                                         {healthyCluster(promotedInStatus), decision{"a second label of the primary", SetRole{0, RoleNone}, StateIncomplete}},
		"a new primary stops receiving from the old one":                                {healthyCluster(promotedInStatus, withInstance(0, unlabelled)), decision{"the primary still replicates", StopIO{[]int{1}}, StateIncomplete}},
		"a new primary applies its relay log":                                           {healthyCluster(promotedInStatus, withInstance(0, unlabelled), withInstance(1, ioStopped, withUnappliedRelayLog)), decision{"the primary applies its relay log", nothing, StateIncomplete}},
		"a new primary that does not apply has its SQL thread started":                  {healthyCluster(promotedInStatus, withInstance(0, unlabelled), withInstance(1, ioStopped, sqlStopped, withUnappliedRelayLog)), decision{"the SQL thread of the primary is stopped", RestartSQL{1}, StateIncomplete}},
		"a new primary is configured":                                                   {healthyCluster(promotedInStatus, withInstance(0, unlabelled), withInstance(1, ioStopped)), decision{"configure the primary", ConfigurePrimary{1, 1}, StateIncomplete}},
		"a new primary is made writable once it has a replica":                          {healthyCluster(promotedAndConfigured), decision{"make the primary writable", MakeWritable{1, 1}, StateIncomplete}},
		"a new primary stays read-only until a replica follows it":                      {healthyCluster(promotedAndConfigured, withInstance(0, replicatesFrom(2)), withInstance(2, replicatesFrom(0))), decision{"a replica has another source", StopIO{[]int{0}}, StateIncomplete}},
		"a new primary without reachable replicas is made writable":                     {healthyCluster(promotedAndConfigured, withInstance(0, podNotReady), withInstance(2, podNotReady)), decision{"make the primary writable", MakeWritable{1, 1}, StateIncomplete}},
		"a new primary stays read-only while another instance can complete commits":     {healthyCluster(promotedAndConfigured, withInstance(0, writable, stoppedInstance)), settledAs(StateIncomplete)},
		"a new primary that is empty waits for all instances":                           {healthyCluster(promotedAndConfigured, withInstance(0, withoutData, podNotReady), withInstance(1, withoutData), withInstance(2, withoutData)), decision{"configure a replica", ConfigureReplica{2, 1}, StateIncomplete}},
		"a new primary gets its label when it is writable":                              {healthyCluster(promotedAndConfigured, withInstance(1, writable)), decision{"label the primary", SetRole{1, RolePrimary}, StateIncomplete}},
		"wrong settings of a writable primary are corrected":                            {healthyCluster(withInstance(0, func(s *Instance) { s.SemiSync.WaitFor = 2 })), decision{"configure the primary", ConfigurePrimary{0, 1}, StateIncomplete}},
		"a lower number of acknowledgements is recorded before the setting is restored": {healthyCluster(withInstance(0, awaitsNobody)), decision{"commits wait for fewer replicas than guaranteed", Nothing{}, StateIncomplete}},
		"commits do not wait for acknowledgements while all replicas are absent":        {healthyCluster(guaranteed(0), withInstance(0, awaitsNobody), withInstance(1, withoutPod), withInstance(2, withoutPod)), settledAs(StateDegraded)},
		"the first replica is cloned before commits wait for its acknowledgement":       {healthyCluster(guaranteed(0), withInstance(0, awaitsNobody), withInstance(1, withoutData, unlabelled), withInstance(2, withoutPod)), decision{"clone a replica", CloneFrom{1, 0}, StateDegraded}},
		"commits wait for the first replica once it follows the primary":                {healthyCluster(guaranteed(0), withInstance(0, awaitsNobody), withInstance(2, withoutData, unlabelled)), decision{"configure the primary", ConfigurePrimary{0, 1}, StateIncomplete}},
		"commits do not wait for the first replica while it is far behind":              {healthyCluster(guaranteed(0), withInstance(0, awaitsNobody, executed("0:1-2000")), withInstance(2, withoutData, unlabelled)), decision{"clone a replica", CloneFrom{2, 0}, StateDegraded}},
		"sessions whose commits wait in the old primary are killed":                     {healthyCluster(promotedAndConfigured, withInstance(0, commitWaiting)), decision{"hung clients of a replica", KillConnections{0, true}, StateIncomplete}},

		"a second writable instance is made read-only":                                                    {healthyCluster(withInstance(2, writable)), decision{"a second writable instance", SetReadOnly{2}, StateDegraded}},
		"sessions in a second writable instance are killed if it stays writable":                          {healthyCluster(withInstance(2, writable, statementPending(killClientsAfter))), decision{"hung clients of a replica", KillConnections{2, true}, StateDegraded}},
		"a second writable instance whose clustering is stopped stays writable":                           {healthyCluster(withInstance(2, writable, stoppedInstance)), settledAs(StateDegraded)},
		"an errant replica is isolated":                                                                   {healthyCluster(withInstance(2, executed("0:1-9,2:1"))), decision{"isolate an errant replica", StopIO{[]int{2}}, StateDegraded}},
		"an errant replica that is isolated loses its label":                                              {healthyCluster(withInstance(2, executed("0:1-9,2:1"), ioStopped)), decision{"hide an errant replica", SetRole{2, RoleNone}, StateDegraded}},
		"an errant replica that is isolated and has no label needs no action":                             {healthyCluster(withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled)), settledAs(StateDegraded)},
		"a replica with a transaction that the primary is still committing is not ahead":                  {healthyCluster(withInstance(0, commitWaiting), withInstance(2, executed("0:1-10"))), settledAs(StateHealthy)},
		"an errant replica's transactions are recorded before its re-clone":                               {healthyCluster(reclonesErrant, withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled)), decision{"record transactions that a re-clone discards", nothing, StateDegraded}},
		"an errant replica with recorded transactions is emptied for its re-clone":                        {healthyCluster(reclonesErrant, withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled, discarded)), decision{"empty an instance for its re-clone", DiscardData{2}, StateDegraded}},
		"an errant replica is not emptied while the other replica does not acknowledge":                   {healthyCluster(reclonesErrant, withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled, discarded), withInstance(1, podNotReady)), settledAs(StateIncomplete)},
		"an errant replica is not emptied while commits are stalled":                                      {healthyCluster(reclonesErrant, withInstance(0, commitWaiting), stalledFor(0, stallTimeout), withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled, discarded)), settledAs(StateIncomplete)},
		"an errant replica is not emptied while a stop is requested":                                      {healthyCluster(stopAsked, reclonesErrant, withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled, discarded)), decision{"clustering has stopped", nothing, StateDegraded}},
		"an errant replica that cannot be compared is not emptied":                                        {healthyCluster(reclonesErrant, withInstance(0, doesNotAnswer), withInstance(2, ioStopped, unlabelled, func(s *Instance) { s.KnownErrant = true })), decision{"the primary does not answer", nothing, StateIncomplete}},
		"an errant replica that is also ahead of the primary is emptied only by a request on its Pod":     {healthyCluster(reclonesErrant, withInstance(2, executed("0:1-10,2:1"), ioStopped, unlabelled, discarded)), settledAs(StateDegraded)},
		"transactions that a replica is ahead are recorded before its re-clone":                           {healthyCluster(withInstance(2, askedToReclone, executed("0:1-10"), unlabelled)), decision{"record transactions that a re-clone discards", nothing, StateDegraded}},
		"transactions that only a relay log has are recorded before its re-clone":                         {healthyCluster(withInstance(2, askedToReclone, withUnappliedRelayLog, unlabelled)), decision{"record transactions that a re-clone discards", nothing, StateDegraded}},
		"a replica with a re-clone request loses its label":                                               {healthyCluster(withInstance(1, askedToReclone)), decision{"hide an instance before its re-clone", SetRole{1, RoleNone}, StateHealthy}},
		"an unlabelled replica with a re-clone request is emptied":                                        {healthyCluster(withInstance(1, askedToReclone, unlabelled)), decision{"empty an instance for its re-clone", DiscardData{1}, StateHealthy}},
		"a re-clone request of an empty replica is cleared":                                               {healthyCluster(withInstance(1, askedToReclone, withoutData, unlabelled)), decision{"clear a re-clone request", ClearReclone{1}, StateDegraded}},
		"the re-clone request of a primary is removed":                                                    {healthyCluster(withInstance(0, askedToReclone)), decision{"clear a re-clone request", ClearReclone{0}, StateHealthy}},
		"a replica that is ahead is unhealthy":                                                            {healthyCluster(withInstance(2, executed("0:1-10"))), settledAs(StateDegraded)},
		"an SQL thread that was just stopped by hand is not started":                                      {healthyCluster(withInstance(1, sqlStopped, unlabelled), notReplicatingFor(manualStopGrace-1)), settledAs(StateDegraded)},
		"an SQL thread that was stopped by hand is started after the grace time":                          {healthyCluster(withInstance(1, sqlStopped), notReplicatingFor(manualStopGrace)), decision{"a replica does not apply", RestartSQL{1}, StateDegraded}},
		"an SQL thread is started at once if the IO thread does not run":                                  {healthyCluster(withInstance(1, sqlStopped, connecting, unlabelled)), decision{"a replica does not apply", RestartSQL{1}, StateDegraded}},
		"an SQL thread that an error stopped is not started":                                              {healthyCluster(withInstance(1, sqlFailed, unlabelled)), settledAs(StateDegraded)},
		"an SQL thread that a full volume stopped is started":                                             {healthyCluster(withInstance(1, sqlFailed, func(s *Instance) { s.Channel.SQLErrno = 1114 })), decision{"a replica does not apply", RestartSQL{1}, StateDegraded}},
		"a stopped IO thread of a replica is started":                                                     {healthyCluster(withInstance(1, ioStopped)), decision{"a replica does not receive", StartIO{1}, StateDegraded}},
		"a replica that its source refused has its IO thread started":                                     {healthyCluster(withInstance(1, ioStopped, ioError(1236))), decision{"a replica does not receive", StartIO{1}, StateDegraded}},
		"a replica that its source refused again waits for the back-off":                                  {healthyCluster(withInstance(1, ioStopped, unlabelled, ioError(1236)), actionFailedBefore(1, refusalBackoff-1)), settledAs(StateDegraded)},
		"a replica that its source refused again has its IO thread started after the back-off":            {healthyCluster(withInstance(1, ioStopped, unlabelled, ioError(1236)), actionFailedBefore(1, refusalBackoff)), decision{"a replica does not receive", StartIO{1}, StateDegraded}},
		"a replica that lost its connection has its IO thread started after the short back-off":           {healthyCluster(withInstance(1, ioStopped, unlabelled, ioError(2003)), actionFailedBefore(1, actionBackoff)), decision{"a replica does not receive", StartIO{1}, StateDegraded}},
		"a connecting replica needs no action":                                                            {healthyCluster(withInstance(1, func(s *Instance) { s.Channel.IO = Connecting })), settledAs(StateDegraded)},
		"a replica that receives from another port of the primary's host stops receiving":                 {healthyCluster(withInstance(1, receivesFromOtherPort)), decision{"a replica has another source", StopIO{[]int{1}}, StateDegraded}},
		"a replica that receives from another instance stops receiving":                                   {healthyCluster(withInstance(1, replicatesFrom(2))), decision{"a replica has another source", StopIO{[]int{1}}, StateDegraded}},
		"a replica that received from another instance keeps its relay log until it is applied":           {healthyCluster(withInstance(1, replicatesFrom(2), ioStopped, withUnappliedRelayLog)), settledAs(StateDegraded)},
		"a replica that received from another instance follows the primary once its relay log is applied": {healthyCluster(withInstance(1, replicatesFrom(2), ioStopped)), decision{"configure a replica", ConfigureReplica{1, 0}, StateDegraded}},
		"a replica that does not acknowledge is configured":                                               {healthyCluster(withInstance(1, func(s *Instance) { s.SemiSync = SemiSync{} })), decision{"configure a replica", ConfigureReplica{1, 0}, StateDegraded}},
		"an empty replica is cloned":                                                                      {healthyCluster(withInstance(1, withoutData, unlabelled)), decision{"clone a replica", CloneFrom{1, 0}, StateDegraded}},
		"an empty replica is not cloned twice":                                                            {healthyCluster(withInstance(1, withoutData, unlabelled, func(s *Instance) { s.Clone = Cloning })), settledAs(StateDegraded)},
		"a replica that needs deleted binary logs is unhealthy":                                           {healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-9") }), withInstance(1, serverRestarted, executed("0:1-5"), unlabelled)), settledAs(StateDegraded)},
		"a read-only primary stays read-only until a replica is cloned":                                   {healthyCluster(withInstance(0, readOnly), withInstance(1, withoutData), withInstance(2, withoutData)), decision{"clone a replica", CloneFrom{1, 0}, StateIncomplete}},
		"a read-only primary is made writable once a replica follows":                                     {healthyCluster(withInstance(0, readOnly), withInstance(2, withoutData)), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"a replica gets its label":                                                                        {healthyCluster(withInstance(1, unlabelled)), decision{"label a replica", SetRole{1, RoleReplica}, StateHealthy}},
		"a replica that lags by more than half the limit gets no label":                                   {healthyCluster(withInstance(1, unlabelled, laggingBy(31*time.Second)), maxDelay), decision{"settled", nothing, StateHealthy}},
		"a replica that lags by half the limit gets its label":                                            {healthyCluster(withInstance(1, unlabelled, laggingBy(30*time.Second)), maxDelay), decision{"label a replica", SetRole{1, RoleReplica}, StateHealthy}},
		"a replica that lags by more than the limit loses its label":                                      {healthyCluster(withInstance(1, laggingBy(61*time.Second)), maxDelay), decision{"hide a replica with old data", SetRole{1, RoleNone}, StateHealthy}},
		"a replica whose SQL thread failed loses its label":                                               {healthyCluster(withInstance(1, sqlFailed)), hidden},
		"a replica that its source refused loses its label":                                               {healthyCluster(withInstance(1, ioStopped, ioError(1236)), actionFailed(1)), hidden},
		"a replica that needs deleted binary logs loses its label":                                        {healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-9") }), withInstance(1, executed("0:1-5"), ioStopped)), hidden},
		"a replica whose thread does not start loses its label":                                           {healthyCluster(withInstance(1, ioStopped), actionFailed(1), notReplicatingFor(stoppedThreadTimeout)), hidden},
		"a replica whose thread has just stopped keeps its label":                                         {healthyCluster(withInstance(1, ioStopped), actionFailed(1), notReplicatingFor(stoppedThreadTimeout-1)), settledAs(StateDegraded)},
		"a replica that has tried to connect for too long loses its label":                                {healthyCluster(withInstance(1, connecting), maxDelay, notReplicatingFor(time.Minute+1)), hidden},
		"a replica that has tried to connect for exactly the allowed time keeps its label":                {healthyCluster(withInstance(1, connecting), maxDelay, notReplicatingFor(time.Minute)), settledAs(StateDegraded)},
		"a replica that its source has refused for too long loses its label":                              {healthyCluster(withInstance(1, connecting, ioError(1045)), maxDelay, notReplicatingFor(stoppedThreadTimeout)), hidden},
		"a replica that its source has just refused keeps its label":                                      {healthyCluster(withInstance(1, connecting, ioError(1045)), maxDelay, notReplicatingFor(stoppedThreadTimeout-1)), settledAs(StateDegraded)},
		"a replica that its source refuses and that last received too long ago loses its label":           {healthyCluster(withInstance(1, connecting, ioError(1045), heardAgo(stoppedThreadTimeout)), maxDelay, notReplicatingFor(0)), hidden},
		"a replica that cannot reach its source and has received nothing for too long loses its label":    {healthyCluster(withInstance(1, connecting, ioError(2003), heardAgo(time.Minute+1)), maxDelay, notReplicatingFor(0)), hidden},
		"a replica that has received from its source within the limit keeps its label":                    {healthyCluster(withInstance(1, connecting, ioError(2003), heardAgo(time.Minute)), maxDelay, notReplicatingFor(0)), settledAs(StateDegraded)},
		"a replica that cannot reach its source for less than the limit keeps its label":                  {healthyCluster(withInstance(1, connecting, ioError(2003)), maxDelay, notReplicatingFor(stoppedThreadTimeout)), settledAs(StateDegraded)},
		"a replica whose SQL thread failed gets no label":                                                 {healthyCluster(withInstance(1, sqlFailed, unlabelled)), settledAs(StateDegraded)},
		"a replica that lags exactly by the limit keeps its label":                                        {healthyCluster(withInstance(1, laggingBy(60*time.Second)), maxDelay), decision{"settled", nothing, StateHealthy}},
		"a replica keeps its label at any lag if there is no limit":                                       {healthyCluster(withInstance(1, laggingBy(time.Hour))), decision{"settled", nothing, StateHealthy}},
		"a replica that lags by more than the limit keeps its label during a stop":                        {healthyCluster(stopAsked, withInstance(1, laggingBy(61*time.Second)), maxDelay), decision{"clustering has stopped", nothing, StateHealthy}},
		"a replica whose clustering is stopped gets no label":                                             {healthyCluster(withInstance(1, unlabelled, stoppedInstance)), settledAs(StateHealthy)},
		"an action without effect is repeated only after the back-off":                                    {healthyCluster(withInstance(1, ioStopped), actionFailed(1)), settledAs(StateDegraded)},

		"instance 0 becomes the primary of a new cluster":                                        {healthyCluster(newCluster), decision{"choose the first primary", PromoteInStatus{0, NoInstance}, StateIncomplete}},
		"a new cluster waits until all instances answer":                                         {healthyCluster(newCluster, withInstance(2, podNotReady)), decision{"no primary", nothing, StateIncomplete}},
		"the writable instance becomes the primary after a loss of the status":                   {healthyCluster(func(o *Observed) { o.Primary = NoInstance }, withInstance(1, executed("0:1-9,1:1"))), decision{"choose the first primary", PromoteInStatus{0, NoInstance}, StateIncomplete}},
		"the most advanced instance becomes the primary after a loss of the status":              {healthyCluster(newCluster, withInstance(2, executed("0:1")), withInstance(1, executed("0:1-2"))), decision{"choose the first primary", PromoteInStatus{1, NoInstance}, StateIncomplete}},
		"a writable instance that lacks transactions is made read-only if there is no primary":   {healthyCluster(newCluster, withInstance(0, writable), withInstance(1, executed("1:1-2"))), decision{"writable instance without a primary", SetReadOnly{0}, StateIncomplete}},
		"a new copy of an external server begins with a clone":                                   {healthyCluster(newCluster, primaryChosen, copiedFromOutside), decision{"copy from the external server", CloneFrom{0, NoInstance}, StateCloning}},
		"a clone of the external server that is in progress delays all other actions":            {healthyCluster(newCluster, primaryChosen, copiedFromOutside, withInstance(0, func(s *Instance) { s.Clone = Cloning })), copying},
		"a complete clone of the external server is recorded":                                    {healthyCluster(newCluster, primaryChosen, copiedFromOutside, withInstance(0, executed("9:1-5"), func(s *Instance) { s.Clone = Cloned })), decision{"copied from the external server", FinishCopy{0}, StateCloning}},
		"a primary that already follows the external server is a copy":                           {healthyCluster(newCluster, primaryChosen, copiedFromOutside, withInstance(0, executed("9:1-5"), followsOutside)), decision{"copied from the external server", FinishCopy{0}, StateCloning}},
		"an instance with only its own transactions is not a copy":                               {healthyCluster(newCluster, primaryChosen, copiedFromOutside, withInstance(0, executed("0:1-5"))), copying},
		"a clone of the external server waits for the Secret of the server":                      {healthyCluster(newCluster, primaryChosen, copiedFromOutside, sourceUnknown), copying},
		"a failed clone of the external server begins again after the back-off":                  {healthyCluster(newCluster, primaryChosen, copiedFromOutside, actionFailedBefore(0, refusalBackoff)), decision{"copy from the external server", CloneFrom{0, NoInstance}, StateCloning}},
		"a failed clone of the external server does not begin again before the back-off ends":    {healthyCluster(newCluster, primaryChosen, copiedFromOutside, actionFailedBefore(0, refusalBackoff-1)), copying},
		"no clone of the external server begins during a stop":                                   {healthyCluster(newCluster, primaryChosen, copiedFromOutside, stopAsked), copying},
		"a copy that follows its external server needs no action":                                {copyCluster(), settledAs(StateHealthy)},
		"a copy without a channel is configured to follow its external server":                   {copyCluster(withInstance(0, withoutChannel)), decision{"follow the external server", FollowOutside{0}, StateIncomplete}},
		"a copy is configured with the changed address or password":                              {copyCluster(withInstance(0, func(s *Instance) { s.Channel.IsOutside = false })), decision{"follow the external server", FollowOutside{0}, StateIncomplete}},
		"semi-sync acknowledgements of a copy to its source are disabled":                        {copyCluster(withInstance(0, func(s *Instance) { s.SemiSync.Replica = true })), decision{"follow the external server", FollowOutside{0}, StateIncomplete}},
		"a copy whose source Secret is missing is not configured":                                {copyCluster(sourceUnknown, withInstance(0, func(s *Instance) { s.Channel.IsOutside = false })), settledAs(StateDegraded)},
		"a new primary of a copy stops replicating from the copy's previous primary":             {copyCluster(withInstance(0, replicatesFrom(1), notOutside)), decision{"the primary still replicates", StopIO{[]int{0}}, StateIncomplete}},
		"a new primary of a copy applies its relay log before it follows the external server":    {copyCluster(withInstance(0, replicatesFrom(1), notOutside, ioStopped, withUnappliedRelayLog)), decision{"the primary applies its relay log", nothing, StateIncomplete}},
		"a new primary of a copy is configured to follow the external server":                    {copyCluster(withInstance(0, replicatesFrom(1), notOutside, ioStopped)), decision{"follow the external server", FollowOutside{0}, StateIncomplete}},
		"a copy of an external server is healthy with an unapplied relay log":                    {copyCluster(withInstance(0, withUnappliedRelayLog)), settledAs(StateHealthy)},
		"a copy that stopped receiving has its IO thread started":                                {copyCluster(withInstance(0, ioStopped)), decision{"the copy does not receive", StartIO{0}, StateDegraded}},
		"a copy that its source refused again waits for the back-off":                            {copyCluster(withInstance(0, ioStopped, ioError(1236)), actionFailedBefore(0, refusalBackoff-1)), settledAs(StateDegraded)},
		"a copy that cannot reach its source is unhealthy":                                       {copyCluster(withInstance(0, connecting)), settledAs(StateDegraded)},
		"a copy that stopped applying has its SQL thread started":                                {copyCluster(withInstance(0, sqlStopped)), decision{"the SQL thread of the primary is stopped", RestartSQL{0}, StateDegraded}},
		"a copy whose SQL thread has failed is unhealthy":                                        {copyCluster(withInstance(0, sqlFailed)), settledAs(StateDegraded)},
		"a writable copy is made read-only":                                                      {copyCluster(withInstance(0, writable)), decision{"a copy is writable", SetReadOnly{0}, StateIncomplete}},
		"a replica with more transactions of the external server than the primary is not errant": {copyCluster(withInstance(1, executed("9:1-7"))), settledAs(StateHealthy)},
		"a copy's replica with transactions of its own is errant":                                {copyCluster(withInstance(1, executed("9:1-5,1:1"))), decision{"isolate an errant replica", StopIO{[]int{1}}, StateDegraded}},
		"a copy's replica need not acknowledge commits":                                          {copyCluster(withInstance(1, awaitsNobody)), settledAs(StateHealthy)},
		"a copy with a switchover request stops receiving":                                       {copyCluster(withInstance(0, askedToStepDown)), decision{"begin a switchover of a copy", StopIO{[]int{0}}, StateHealthy}},
		"a copy that steps down waits for the switchover target":                                 {copyCluster(withInstance(0, askedToStepDown, ioStopped, executed("9:1-6"))), decision{"the switchover target is catching up", nothing, StateDegraded}},
		"a copy with a switchover target steps down":                                             {copyCluster(withInstance(0, askedToStepDown, ioStopped)), decision{"switch over", PromoteInStatus{1, 0}, StateDegraded}},
		"a copy receives again after its switchover gave up":                                     {copyCluster(withInstance(0, askedToStepDown, ioStopped), switchoverGaveUp), decision{"the copy does not receive", StartIO{0}, StateDegraded}},
		"accounts of a copy that its source changed are restored":                                {copyCluster(withInstance(1, connecting, ioError(1045))), decision{"accounts of a copy", TakeOverAccounts{0}, StateDegraded}},
		"outdated accounts of a copy are updated":                                                {copyCluster(withInstance(0, func(s *Instance) { s.HasOldAccounts = true })), decision{"accounts of a copy", TakeOverAccounts{0}, StateHealthy}},
		"a copy fails over": {copyCluster(withInstance(0, podNotReady), withInstance(1, ioStopped), withInstance(2, ioStopped)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a copy whose source is removed from the spec stops receiving":        {copyCluster(onItsOwn), decision{"the primary still replicates", StopIO{[]int{0}}, StateIncomplete}},
		"a copy whose source is removed from the spec applies its relay log":  {copyCluster(onItsOwn, withInstance(0, ioStopped, withUnappliedRelayLog)), decision{"the primary applies its relay log", nothing, StateIncomplete}},
		"a copy whose source is removed from the spec is set up as a primary": {copyCluster(onItsOwn, withInstance(0, ioStopped)), decision{"configure the primary", ConfigurePrimary{0, 1}, StateIncomplete}},
		"a cluster that is being restored waits for the end of the restore":   {healthyCluster(func(o *Observed) { o.Restore.Wanted = true }, withInstance(0, readOnly)), decision{"restoring", nothing, StateRestoring}},
		"no action is taken on an offline cluster":                            {healthyCluster(func(o *Observed) { o.Offline = true }, withInstance(0, podNotReady)), decision{"offline", nothing, StateOffline}},

		"no action is taken on a cluster that is being deleted":                             {healthyCluster(func(o *Observed) { o.IsBeingDeleted = true }), decision{"being deleted", nothing, StateHealthy}},
		"a stop ends at its end time":                                                       {healthyCluster(stopAsked, func(o *Observed) { o.IsStopOverdue = true }), decision{"the stop's end time has passed", EndStop{}, StateHealthy}},
		"a reached stop ends at its end time":                                               {healthyCluster(stopAsked, stopReached, func(o *Observed) { o.IsStopOverdue = true }), decision{"the stop's end time has passed", EndStop{}, StateHealthy}},
		"an overdue stop of an instance ends even if a start of clustering would lose rows": {healthyCluster(stopAsked, stopReached, func(o *Observed) { o.IsStopOverdue, o.IsOtherStopOverdue = true, true }, withInstance(1, executed("0:1-10"))), decision{"the stop's end time has passed", EndStop{}, StateDegraded}},
		"an overdue stop of clustering does not end while a start would lose rows":          {healthyCluster(stopAsked, stopReached, func(o *Observed) { o.IsStopOverdue = true }, withInstance(1, executed("0:1-10"))), decision{"a start is refused", nothing, StateDegraded}},
		"a start of clustering that would lose rows is refused":                             {healthyCluster(stopReached, withInstance(1, executed("0:1-10"))), decision{"a start is refused", nothing, StateDegraded}},
		"a start of clustering that would isolate an instance is refused":                   {healthyCluster(stopReached, withInstance(1, executed("0:1-9,1:1"))), decision{"a start is refused", nothing, StateDegraded}},
		"a start of clustering is not refused for an isolated errant instance":              {healthyCluster(stopReached, withInstance(1, executed("0:1-9,1:1"), ioStopped, unlabelled)), decision{"started", nothing, StateDegraded}},
		"a start of clustering is not refused for an empty instance":                        {healthyCluster(stopReached, withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-7") }), withInstance(1, withoutData)), decision{"started", nothing, StateDegraded}},
		"a start of clustering that is forced is not refused":                               {healthyCluster(stopReached, func(o *Observed) { o.StartForced = true }, withInstance(1, executed("0:1-10"))), decision{"started", nothing, StateDegraded}},
		"weakened durability is restored":                                                   {healthyCluster(withInstance(1, func(s *Instance) { s.Weakened = []string{"sync_binlog"} })), decision{"weakened durability", RestoreDurability{1}, StateDegraded}},
		"outdated accounts are renewed":                                                     {healthyCluster(withInstance(0, func(s *Instance) { s.HasOldAccounts = true })), decision{"outdated accounts", RenewAccounts{0}, StateHealthy}},
		"expired accounts are renewed although no pod is ready": {
			healthyCluster(withInstance(0, unready, expired), withInstance(1, unready), withInstance(2, unready)), decision{"outdated accounts", RenewAccounts{0}, StateIncomplete},
		},
		"expired accounts are not renewed before a replica acknowledges": {
			healthyCluster(withInstance(0, unready, expired), withInstance(1, unready, connecting), withInstance(2, unready, connecting)), settledAs(StateIncomplete),
		},
		"outdated accounts are not renewed before the cluster is healthy":      {healthyCluster(withInstance(0, func(s *Instance) { s.HasOldAccounts = true }), withInstance(1, sqlFailed, unlabelled)), settledAs(StateDegraded)},
		"a channel is renewed once both servers have certificates":             {healthyCluster(certified(0), certified(2)), decision{"replication channel does not verify the primary", RenewChannel{2}, StateHealthy}},
		"no channel is renewed while the primary has no certificate":           {healthyCluster(certified(1), certified(2)), settledAs(StateHealthy)},
		"a channel whose certificate comes from another Secret is not renewed": {healthyCluster(certified(0), certifiedBy(2, "other")), settledAs(StateHealthy)},
		"a channel that can no longer verify the primary is renewed":           {healthyCluster(certified(0), certifiedBy(2, "other"), withInstance(2, verified, connecting)), decision{"replication channel has another CA than the primary", RenewChannel{2}, StateDegraded}},
		"no channel is renewed while the primary's Pod does not exist":         {healthyCluster(certifiedBy(2, "other"), withInstance(2, verified)), settledAs(StateHealthy)},
		"an aging certificate is reloaded":                                     {healthyCluster(certified(1), withInstance(1, func(s *Instance) { s.CertificateIsAging = true })), decision{"certificate is due for renewal", ReloadCertificate{1}, StateHealthy}},
		"an ineffective reload is repeated only after the back-off": {healthyCluster(certified(1), withInstance(1, func(s *Instance) { s.CertificateIsAging = true }), func(o *Observed) {
			o.History = o.History.WithResult(ReloadCertificate{1}, o.Now.Add(-time.Minute), "")
		}), settledAs(StateHealthy)},
		"a rotation begins with new passwords":                                    {healthyCluster(rotating("", false)), decision{"make new passwords", PrepareRotation{}, StateHealthy}},
		"a rotation waits for a healthy cluster":                                  {healthyCluster(rotating("", false), withInstance(1, sqlFailed, unlabelled)), settledAs(StateDegraded)},
		"the accounts in the primary get second passwords":                        {healthyCluster(rotating("r", false), knowing(1)), decision{"give accounts two passwords", RetainPasswords{0}, StateHealthy}},
		"a rotation waits until replicas have executed the password change":       {healthyCluster(rotating("r", false), knowing(0), knowing(1)), decision{"replicas lack the new passwords", Nothing{}, StateHealthy}},
		"channels get the new password":                                           {healthyCluster(rotating("r", false), knowingAll(), withInstance(2, func(s *Instance) { s.Channel.HasOldPassword = true })), decision{"a channel with an old password", RenewChannel{2}, StateHealthy}},
		"new passwords are promoted":                                              {healthyCluster(rotating("r", false), knowingAll()), decision{"promote the new passwords", PromotePasswords{}, StateHealthy}},
		"a rotation is complete after the promotion":                              {healthyCluster(rotating("r", true), knowingAll()), decision{"rotation is complete", EndRotation{}, StateHealthy}},
		"old passwords are kept while mounted files contain them":                 {healthyCluster(discarding(0), knowingAll()), decision{"old passwords are still in files", Nothing{}, StateHealthy}},
		"old passwords are kept while the kubelet may not have updated the files": {healthyCluster(discarding(time.Minute), knowingAll()), decision{"old passwords are still in files", Nothing{}, StateHealthy}},
		"old passwords are kept while a replication channel uses one":             {healthyCluster(discarding(time.Hour), knowingAll(), withInstance(1, func(s *Instance) { s.Channel.HasOldPassword = true })), decision{"a channel with an old password", RenewChannel{1}, StateHealthy}},
		"old passwords that no file contains are discarded":                       {healthyCluster(discarding(time.Hour), knowingAll()), decision{"discard the old passwords", DiscardPasswords{0}, StateHealthy}},
		"a discard is not complete until every replica has executed it":           {healthyCluster(discarding(time.Hour), knowing(2)), settledAs(StateHealthy)},
		"a rotation is complete after the discard":                                {healthyCluster(discarding(time.Hour)), decision{"rotation is complete", EndRotation{true}, StateHealthy}},
		"annotations left over from a stop are removed":                           {healthyCluster(func(o *Observed) { o.HasLeftovers = true }), decision{"remove leftovers of a stop", RemoveLeftovers{}, StateHealthy}},
		"a stop of a healthy cluster is reached at once":                          {healthyCluster(stopAsked), decision{"clustering has stopped", nothing, StateHealthy}},
		"no action is taken once the stop is reached":                             {healthyCluster(stopAsked, stopReached, withInstance(0, podNotReady)), decision{"stopped", nothing, StateFailed}},
		"a start removes the record of the stop before any other action":          {healthyCluster(stopReached, withInstance(0, podNotReady)), decision{"started", nothing, StateFailed}},
		"a stop withdraws a switchover":                                           {healthyCluster(stopAsked, withInstance(0, readOnly, askedToStepDown)), decision{"make the primary writable", MakeWritable{0, 1}, StateIncomplete}},
		"a stop cancels the statement of a switchover":                            {healthyCluster(stopAsked, withInstance(0, statementPending(0), askedToStepDown)), decision{"cancel a hanging statement", CancelPending{0}, StateHealthy}},
		"a stop finishes a recorded promotion":                                    {healthyCluster(stopAsked, promotedInStatus), decision{"a second label of the primary", SetRole{0, RoleNone}, StateIncomplete}},
		"a requested stop prevents a fence":                                       {healthyCluster(stopAsked, withInstance(0, podNotReady)), decision{"primary has failed", nothing, StateFailed}},
		"a stop withdraws a fence":                                                {healthyCluster(stopAsked, withInstance(0, podNotReady), withInstance(1, ioStopped)), decision{"withdraw the fence", StartIO{1}, StateFailed}},
		"a stop finishes a failover whose replicas are fenced":                    {healthyCluster(stopAsked, withInstance(0, podNotReady), withInstance(1, ioStopped), withInstance(2, ioStopped)), decision{"fail over", PromoteInStatus{1, 0}, StateFailed}},
		"a stop waits for a clone":                                                {healthyCluster(stopAsked, withInstance(1, withoutData, func(s *Instance) { s.Clone = Cloning })), decision{"quiescing", nothing, StateDegraded}},
		"no clone is started during a stop":                                       {healthyCluster(stopAsked, withInstance(1, withoutData)), decision{"clustering has stopped", nothing, StateDegraded}},
		"a stop is reached after its timeout despite unfinished work":             {healthyCluster(stopAsked, withInstance(0, podNotReady), stopAskedSince(stopTimeout)), decision{"clustering has stopped", nothing, StateFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			used[p.Rule] = true
			if diff := cmp.Diff(row.want, decision{p.Rule, p.Do, p.State}); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
	for _, r := range rules() {
		if !used[r.Name] {
			t.Errorf("expected a case for the rule %q, found none", r.Name)
		}
	}
}

func TestPollIntervalsOfSettledClusters(t *testing.T) {
	for name, row := range map[string]struct {
		in   Observed
		want time.Duration
	}{
		"a healthy cluster: polled after the healthy interval":                     {healthyCluster(maxDelay), healthyInterval},
		"a lagging replica without its label: polled soon":                         {healthyCluster(maxDelay, withInstance(1, unlabelled, laggingBy(31*time.Second))), degradedInterval},
		"a replica whose clustering is stopped: polled after the healthy interval": {healthyCluster(withInstance(1, unlabelled, stoppedInstance)), healthyInterval},
		"a replica close to the lag limit: polled when it reaches the limit":       {healthyCluster(maxDelay, withInstance(2, laggingBy(57*time.Second))), 3 * time.Second},
		"a lagging replica without a lag limit: polled after the healthy interval": {healthyCluster(withInstance(2, laggingBy(57*time.Second))), healthyInterval},
		"a slightly lagging replica: polled after the healthy interval":            {healthyCluster(maxDelay, withInstance(2, laggingBy(time.Second))), healthyInterval},
		"a replica close to the deletion limit: polled when it reaches the limit":  {healthyCluster(deletionLimit, withInstance(2, laggingBy(25*time.Second))), 5 * time.Second},
		"an unwatched replica: polled soon":                                        {healthyCluster(withInstance(1, unwatched)), degradedInterval},
		"a replica at the lag limit: polled soon":                                  {healthyCluster(maxDelay, withInstance(2, laggingBy(time.Minute))), degradedInterval},
	} {
		if p := Decide(row.in); p.Rule != "settled" || p.After != row.want {
			t.Errorf("%s: expected to settle for %s, found %q for %s", name, row.want, p.Rule, p.After)
		}
	}
}

func TestReplicasThatAreWatched(t *testing.T) {
	for name, row := range map[string]struct {
		in   Observed
		want []int
	}{
		"replicas that apply are watched, and the primary is not": {healthyCluster(), []int{1, 2}},
		"a replica whose SQL thread is stopped is not watched":    {healthyCluster(withInstance(1, sqlStopped)), []int{2}},
		"a replica that does not receive is watched":              {healthyCluster(withInstance(1, ioStopped)), []int{1, 2}},
		"an unreachable replica is not watched":                   {healthyCluster(withInstance(1, doesNotAnswer), withInstance(1, func(s *Instance) { s.Reachable = false })), []int{2}},
		"a replica whose clustering is stopped is not watched":    {healthyCluster(withInstance(2, stoppedInstance)), []int{1}},
		"no replica is watched while a stop is requested":         {healthyCluster(stopAsked), nil},
		"no replica is watched until a withdrawn stop has ended":  {healthyCluster(stopReached), nil},
		"no replica is watched without a primary":                 {healthyCluster(newCluster), nil},
	} {
		var got []int
		for i := range row.in.Instances {
			if row.in.NeedsReplicationWatch(i) {
				got = append(got, i)
			}
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

func missedLooks(looks int, since time.Duration) func(*Observed) {
	return func(o *Observed) {
		o.History.Instances[0].Misses, o.History.Instances[0].UnreachableSince = looks, o.Now.Add(-since)
	}
}

func notReplicatingFor(d time.Duration) func(*Observed) {
	return func(o *Observed) { o.History.Instances[1].NotReplicatingSince = o.Now.Add(-d) }
}

func offline(o *Observed)        { o.Offline = true }
func reclonesErrant(o *Observed) { o.ReclonesErrant = true }
func askedToReclone(s *Instance) { s.Pod.Reclone = true }
func discarded(s *Instance)      { s.Discarded = parseTestSet("2:1") }

func heardAgo(d time.Duration) func(*Instance) { return func(s *Instance) { s.Channel.HeardAgo = d } }
func hears(s *Instance)                        { s.Channel.HeardAgo = time.Second }
func unseenLimit(o *Observed)                  { o.Waits.Unseen = time.Minute }
func wasDown(o *Observed)                      { o.History.Instances[0].DownSince = o.Now }

func hearThePrimary(o *Observed) {
	for i := 1; i < len(o.Instances); i++ {
		hears(&o.Instances[i])
	}
}

// fiveInstances adds two replicas that are equal to the existing replicas.
func fiveInstances(o *Observed) {
	o.Replicas = 5
	o.Instances = append(o.Instances, o.Instances[1], o.Instances[2])
	o.History.Instances = make([]InstanceHistory, 5)
	for i := range o.Instances {
		o.Instances[i].UUID, o.Instances[i].Host = uuid(i), host(i)
	}
}

func superReadOnly(s *Instance) { s.SuperReadOnly = true }

func stalledFor(i int, d time.Duration) func(*Observed) {
	return func(o *Observed) { o.History.Instances[i].StalledSince = o.Now.Add(-d) }
}

// replicasCannotLogIn makes the replicas fail to connect for as long as the primary's commits wait.
func replicasCannotLogIn(d time.Duration) func(*Observed) {
	return func(o *Observed) {
		stalledFor(0, d)(o)
		o.Instances[0].Connected = nil
		for i := 1; i < 3; i++ {
			connecting(&o.Instances[i])
			o.History.Instances[i].ConnectingSince = o.Now.Add(-d)
		}
	}
}

func stopAskedSince(since time.Duration) func(*Observed) {
	return func(o *Observed) { o.History.StopAskedSince = o.Now.Add(-since) }
}

func singleInstance(o *Observed) {
	o.Replicas, o.Instances = 1, o.Instances[:1]
}

func primaryChosen(o *Observed)     { o.Primary = 0 }
func copiedFromOutside(o *Observed) { o.Source.Wanted = true }
func onItsOwn(o *Observed)          { o.Source.Wanted = false }
func sourceUnknown(o *Observed)     { o.SourceProblem = "expected the Secret source, found none" }

func notOutside(s *Instance) { s.Channel.IsOutside = false }

func followsOutside(s *Instance) {
	s.Channel = ReplicationChannel{Present: true, SourceHost: "outside", SourcePort: 3306, IsOutside: true, IO: Running, SQL: Running, HeardAgo: -1}
}

// copyCluster returns a healthy cluster whose primary, instance 0, follows an external server, after applying the
// changes.
func copyCluster(changes ...func(*Observed)) Observed {
	return healthyCluster(slices.Concat([]func(*Observed){func(o *Observed) {
		o.Source = OneTimeOperation{Wanted: true, Done: true}
		for i := range o.Instances {
			o.Instances[i].Executed = parseTestSet("9:1-5")
		}
		readOnly(&o.Instances[0])
		o.Instances[0].SemiSync = SemiSync{}
		followsOutside(&o.Instances[0])
	}}, changes)...)
}
func stopReached(o *Observed) { o.Stop = &StopRecord{Since: o.Now} }

func refusesAdmin(s *Instance) { s.ExpiredAccounts = []string{"moco-admin"} }

// refusal returns the condition text for accounts whose passwords have expired.
func refusal(accounts string) string {
	return "refuses " + accounts + ", whose password has expired (MySQL error 1862 or 1820); the server renews the accounts at its next start: " +
		"delete the pod of the instance, unless the kubelet restarts the server"
}

func TestConditions(t *testing.T) {
	type reported struct{ Initialized, Available, Healthy, Active string }
	format := func(c decision.Condition) string { return string(c.Status) + " " + c.Reason + ": " + c.Message }
	const up, active = "True Initialized: The cluster has a primary", "True ClusteringActive: Clustering is active"
	for name, row := range map[string]struct {
		in   Observed
		want reported
	}{
		"a healthy cluster: available and healthy": {healthyCluster(), reported{
			up, "True Healthy: The primary, instance 0, is in service", "True Healthy: Every replica follows the primary, instance 0", active,
		}},
		"a stopped cluster: Unknown, with the observed state in the message": {healthyCluster(stopAsked, stopReached), reported{
			up, "Unknown ClusteringStopped: Clustering is stopped; the observed state is Healthy",
			"Unknown ClusteringStopped: Clustering is stopped; the observed state is Healthy", "False ClusteringInactive: Clustering is stopped",
		}},
		"a stop lists its unfinished work": {healthyCluster(stopAsked, withInstance(0, readOnly)), reported{
			"True Initialized: The cluster has a primary", "False Incomplete: instance 0 is the primary and read-only",
			"False Incomplete: instance 0 is the primary and read-only",
			"True Quiescing: Clustering is about to stop; unfinished work: the primary, instance 0, is read-only",
		}},
		"a primary that did not answer once: Available is Unknown": {healthyCluster(withInstance(0, doesNotAnswer)), reported{
			"True Initialized: The cluster has a primary", "Unknown PrimaryUnanswered: The primary, instance 0, did not answer",
			"False Incomplete: instance 0 does not answer", active,
		}},
		"a replica that is ahead is unhealthy": {healthyCluster(withInstance(2, executed("0:1-9:11"))), reported{
			"True Initialized: The cluster has a primary", "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 2 is ahead of the primary by " + uuid(0) + ":11; the primary will use these GTIDs for other transactions, which this instance will skip; re-clone it with kubectl moco reclone NAME --index 2", active,
		}},
		"an errant replica that is ahead is not announced to be re-cloned": {healthyCluster(reclonesErrant, withInstance(2, executed("0:1-10,2:1"), ioStopped, unlabelled)), reported{
			up, "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 2 is errant: it has " + uuid(2) + ":1, which the primary does not have; re-clone it with kubectl moco reclone NAME --index 2", active,
		}},
		"an account that the primary refuses is listed": {healthyCluster(withInstance(0, doesNotAnswer, refusesAdmin)), reported{
			up, "Unknown PrimaryUnanswered: The primary, instance 0, did not answer; the instance " + refusal("moco-admin"),
			"False Incomplete: instance 0 " + refusal("moco-admin"), active,
		}},
		"an account that a replica refuses is listed": {healthyCluster(withInstance(1, doesNotAnswer, refusesAdmin)), reported{
			up, "True Degraded: The primary, instance 0, is in service", "False Degraded: instance 1 " + refusal("moco-admin"), active,
		}},
		"an expired account that keeps a Pod from being ready is listed": {
			healthyCluster(withInstance(0, func(s *Instance) { s.Pod.Ready, s.ExpiredAccounts = false, []string{"moco-agent", "moco-backup"} })), reported{
				up, "False Incomplete: instance 0 is the primary and " + refusal("moco-agent, moco-backup"),
				"False Incomplete: instance 0 is the primary and " + refusal("moco-agent, moco-backup"), active,
			},
		},
		"expired accounts of a healthy cluster are renewed immediately": {healthyCluster(withInstance(0, func(s *Instance) {
			s.HasOldAccounts, s.ExpiredAccounts = true, []string{"moco-backup"}
		})), reported{
			up, "True Healthy: The primary, instance 0, is in service", "True Healthy: Every replica follows the primary, instance 0", active,
		}},
		"the account with which a replica cannot log in is listed": {healthyCluster(withInstance(1, connecting, ioError(1862))), reported{
			up, "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 1 is refused by the primary with MySQL error 1862, because the password of the replication account has expired; " +
				"the primary's server renews the account at its next start: delete the primary's pod", active,
		}},
		"a failed thread is reported with its error number": {healthyCluster(withInstance(1, sqlFailed)), reported{
			"True Initialized: The cluster has a primary", "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 1 stopped applying with error 1062; see the output of SHOW REPLICA STATUS", active,
		}},
		"a cluster without a primary is not initialized": {healthyCluster(newCluster, withInstance(2, podNotReady)), reported{
			"False Incomplete: the first primary is chosen once every instance answers; instance 2 does not answer",
			"False Incomplete: instance 2 does not answer", "False Incomplete: instance 2 does not answer", active,
		}},
		"an offline cluster that never had a primary is not initialized": {healthyCluster(newCluster, offline), reported{
			"False Offline: The cluster is offline; its first primary is chosen when every instance runs", "False Offline: The cluster is Offline",
			"False Offline: The cluster is Offline", active,
		}},
		"an offline cluster with a primary is initialized": {healthyCluster(offline), reported{
			up, "False Offline: The cluster is Offline", "False Offline: The cluster is Offline", active,
		}},
		"a switchover that is delayed until no replica lags is reported": {healthyCluster(deletionLimit, withInstance(0, askedToStepDown, protected), withInstance(2, laggingByAMinute)), reported{
			up, "True Healthy: The primary, instance 0, is in service", "True Healthy: Every replica follows the primary, instance 0; " +
				"the switchover from instance 0 waits until no replica lags by more than 30s (spec.maxDelaySecondsForPodDeletion)", active,
		}},
		"a switchover that cannot begin is reported": {healthyCluster(withInstance(0, askedToStepDown), withInstance(1, sqlFailed), withInstance(2, sqlFailed)), reported{
			"True Initialized: The cluster has a primary", "True Degraded: The primary, instance 0, is in service",
			"False Degraded: instance 1 stopped applying with error 1062; see the output of SHOW REPLICA STATUS; instance 2 stopped applying with error 1062; " +
				"see the output of SHOW REPLICA STATUS; the switchover from instance 0 waits for a replica that is in sync and ready", active,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			got := reported{format(p.Initialized), format(p.Available), format(p.Healthy), format(p.ClusteringActive)}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStopRecordsUnfinishedWork(t *testing.T) {
	p := Decide(healthyCluster(stopAsked, withInstance(0, podNotReady), stopAskedSince(time.Minute)))
	want := &StopRecord{Since: modelTime(), Unfinished: "the primary, instance 0, does not answer"}
	if diff := cmp.Diff(want, p.Stop); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if p.Available.Status != metav1.ConditionUnknown || p.ClusteringActive.Status != metav1.ConditionFalse || !p.Events[0].Warning {
		t.Errorf("expected a stop with a warning, found %+v, %+v, %+v", p.Available, p.ClusteringActive, p.Events)
	}
	o := healthyCluster(stopAsked)
	o.Stop = p.Stop
	if again := Decide(o); again.Stop != p.Stop || again.ClusteringActive != p.ClusteringActive || len(again.Events) != 0 {
		t.Errorf("expected the record and its message to stay, without events, found %+v, %+v, %+v", again.Stop, again.ClusteringActive, again.Events)
	}
}

func TestReportsOfInstances(t *testing.T) {
	p := Decide(healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-3") }), withInstance(1, executed("0:1-9,1:1-2"), func(s *Instance) { s.Channel.Lag = -1 }), withInstance(2, executed("0:4-9"), laggingByAMinute)))
	type row struct {
		Errant, Gap string
		InSync      bool
		Lag         time.Duration
	}
	var got []row
	for _, r := range p.Instances {
		got = append(got, row{r.Errant.String(), r.Gap.String(), r.InSync, r.Lag})
	}
	want := []row{{}, {Errant: uuid(1) + ":1-2", Lag: -1}, {Gap: uuid(0) + ":1-3", InSync: true, Lag: time.Minute}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1}, p.Errant); diff != "" || p.Synced != 1 {
		t.Errorf("expected instance 1 to be errant and one in sync, found %v and %d", p.Errant, p.Synced)
	}
}

// TestDecideIsTotal checks that every observation, possible or not, has exactly one complete plan.
func TestDecideIsTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rulesUsed := map[string]bool{}
	for n := range 30_000 {
		o := randomObserved(rng)
		o.IsBeingDeleted, o.IsStopOverdue, o.HasLeftovers = n%100 == 0, n%100 == 1, n%10 == 2
		if n%10 == 3 {
			deletionLimit(&o)
			withInstance(n/10%5, protected, laggingByAMinute)(&o)
		}
		before := o
		before.Instances = slices.Clone(o.Instances)
		p := Decide(o)
		rulesUsed[p.Rule] = true
		if !reflect.DeepEqual(o, before) || !reflect.DeepEqual(p, Decide(o)) {
			t.Fatalf("expected the same plan twice and nothing changed, for %+v", o)
		}
		if wrong := findIncompleteness(o, p); wrong != "" {
			t.Fatalf("%s: %+v\nfor %+v", wrong, p, o)
		}
		UpdateHistory(o.History, o)
	}
	if len(rulesUsed) < len(rules())-21 {
		t.Errorf("expected nearly all of %d rules, found %d", len(rules()), len(rulesUsed))
	}
}

func findIncompleteness(o Observed, p Plan) string {
	reason := regexp.MustCompile(`^[A-Za-z]+$`)
	for _, c := range []decision.Condition{p.Initialized, p.Available, p.Healthy, p.ClusteringActive} {
		known := c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown
		if !known || !reason.MatchString(c.Reason) || c.Message == "" {
			return "an incomplete condition"
		}
	}
	_, idle := p.Do.(Nothing)
	_, endsStop := p.Do.(EndStop)
	mayAct := !o.StopAsked || o.Stop == nil || o.IsStopOverdue && endsStop
	switch {
	case p.Rule == "" || p.Do == nil || p.Why == "" || p.State == "":
		return "no rule, action, reason or state"
	case p.After <= 0 || p.After > stoppedInterval || !idle && p.After != immediately:
		return "plans the next pass for a wrong time"
	case !idle && !mayAct:
		return "acts although it is stopped"
	case len(p.Instances) != max(o.Replicas, 0):
		return "does not report every instance"
	}
	for _, i := range TargetInstances(p.Do) {
		if i < 0 || i >= o.Replicas || o.Instances[i].Stopped {
			return "touches an instance that does not exist or is left alone"
		}
	}
	return ""
}

func randomObserved(rng *rand.Rand) Observed {
	maybe := func() bool { return rng.IntN(2) == 0 }
	rarely := func() bool { return rng.IntN(12) == 0 }
	when := func() time.Time {
		return []time.Time{{}, modelTime(), modelTime().Add(-time.Second), modelTime().Add(-time.Hour)}[rng.IntN(4)]
	}
	o := Observed{
		Now: modelTime(), Replicas: []int{0, 1, 2, 3, 5}[rng.IntN(5)], Offline: rarely(), StopAsked: rarely(), Primary: rng.IntN(5) - 1, ReclonesErrant: maybe(),
		Source: OneTimeOperation{rarely(), maybe()}, SourceProblem: []string{"", "none"}[rng.IntN(2)], Restore: OneTimeOperation{rarely(), rarely()}, History: History{StopAskedSince: when(), ReadOnlySince: when(), GaveUpAt: when()},
	}
	if rarely() {
		o.Stop = &StopRecord{Since: when()}
	}
	if acks := rng.IntN(5) - 1; acks >= 0 {
		o.GuaranteedAcks, o.History.Acks = &acks, AcksRecord{rng.IntN(3), uuid(max(0, o.Primary)), parseTestSet("0:1-9")}
	}
	texts := []string{"", "0:1-9", "0:1-9", "0:1-9", "0:1-10", "0:1-9,1:1", "2:1"}
	threads := []ThreadState{Stopped, Connecting, Running, Running}
	for i := range 5 {
		s := Instance{
			Host: host(i), Pod: PodFacts{!rarely(), maybe(), rarely(), rarely(), rarely(), false, []PodRole{RoleNone, RolePrimary, RoleReplica}[rng.IntN(3)]},
			Stopped: rarely(), HasOldAccounts: rarely(), KnownErrant: rarely(), Reachable: !rarely(), Refused: rarely(), Pending: rarely(), PendingFor: time.Duration(rng.IntN(20)) * time.Second,
			UUID: uuid(i), Connected: []string{uuid(rng.IntN(3)), uuid(rng.IntN(3))},
			SemiSync: SemiSync{i == o.Primary, i != o.Primary, !rarely(), o.Replicas / 2, endlessTimeout, rng.IntN(8) / 7, rarely()},
			Clone:    []CloneState{NotCloned, NotCloned, NotCloned, Cloning, Cloned, CloneFailed}[rng.IntN(6)],
		}
		s.ReadOnly = maybe()
		s.SuperReadOnly = s.ReadOnly && !rarely()
		if text := texts[rng.IntN(len(texts))]; text != "" {
			s.Executed = parseTestSet(text)
		}
		if i != o.Primary || rarely() || o.Source.Wanted {
			s.Channel = ReplicationChannel{!rarely(), host(max(0, o.Primary)), rng.IntN(12) / 11, threads[rng.IntN(4)], threads[rng.IntN(4)], 1236 * (rng.IntN(12) / 11), 1062 * (rng.IntN(12) / 11), 0, s.ReadOnly, s.ReadOnly, maybe(), time.Duration(rng.IntN(3)-1) * 2 * heardTimeout, s.Executed}
		}
		if i == o.Primary && o.Source.Wanted && maybe() {
			s.Channel.SourceHost = "outside"
		}
		o.Instances = append(o.Instances, s)
		o.History.Instances = append(o.History.Instances, InstanceHistory{UnreachableSince: when(), Misses: rng.IntN(3), NotReplicatingSince: when(), StalledSince: when(), ConnectingSince: when()})
	}
	return o
}

// TestPageListsTheRules checks that docs/clustering.md lists the rules in the order in which they are evaluated.
func TestPageListsTheRules(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clustering.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| rule | what happens |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var got, want []string
	for line := range strings.SplitSeq(table, "\n") {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		got = append(got, name)
	}
	for _, r := range rules() {
		want = append(want, r.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules in docs/clustering.md (-want +got):\n%s", diff)
	}
}

func healthyModel(t *testing.T) (*modelExplorer, modelTrace) {
	t.Helper()
	a := newModelExplorer(t)
	way := a.makeHealthy(3)
	s := way[len(way)-1]
	s.steps = nil
	return a, s
}

func (s modelTrace) listActions() []string {
	var list []string
	for _, line := range s.steps {
		if _, do, ok := strings.Cut(line, ": clustering."); ok && !strings.HasPrefix(do, "Nothing") {
			list = append(list, do)
		}
	}
	return list
}

func TestSwitchoverStepByStep(t *testing.T) {
	a, s := healthyModel(t)
	s.servers[0].demote = true
	way, _ := a.runUntilQuiet(s)
	want := []string{
		"SetReadOnly{0}", "PromoteInStatus{1 0}", "SetRole{0 }", "StopIO{[1]}", "ConfigurePrimary{1 1}", "StopIO{[2]}",
		"ConfigureReplica{0 1}", "MakeWritable{1 1}", "SetRole{1 primary}", "ConfigureReplica{2 1}", "SetRole{0 replica}", "ClearDemote{0}",
	}
	if diff := cmp.Diff(want, way[len(way)-1].listActions()); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
}

func TestFailoverStepByStep(t *testing.T) {
	a, s := healthyModel(t)
	s.crashServer(0)
	way, _ := a.runUntilQuiet(s)
	want := []string{
		"StopIO{[1 2]}", "PromoteInStatus{1 0}", "SetRole{0 }", "ConfigurePrimary{1 1}", "ConfigureReplica{2 1}",
		"MakeWritable{1 1}", "SetRole{1 primary}",
	}
	if diff := cmp.Diff(want, way[len(way)-1].listActions()); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
}

// TestStopAtEveryStepOfASwitchover stops clustering at every step of a switchover, with and without hanging clients.
func TestStopAtEveryStepOfASwitchover(t *testing.T) {
	for _, hanging := range []bool{false, true} {
		a, s := healthyModel(t)
		s.servers[0].demote, s.servers[0].busy = true, hanging
		way, _ := a.runUntilQuiet(s)
		for i, at := range way {
			end := a.checkStop(at)
			if end.stop.left != "" || end.servers[end.primary].readOnly {
				t.Errorf("step %d: expected nothing left, found %q:\n%s", i, end.stop.left, strings.Join(end.steps, "\n"))
			}
		}
	}
}

func TestSwitchoverThatCannotFinishIsTakenBack(t *testing.T) {
	a, s := healthyModel(t)
	s.servers[0].demote = true
	s, _ = a.runPass(s, undisturbed(0)) // The primary is read-only now.
	s.servers[1].slow, s.servers[2].slow = true, true
	s.commitDirectly(0) // The replicas are slow to apply this commit.
	readOnly := time.Duration(0)
	for range maxPasses {
		var p Plan
		s, p = a.runPass(s, undisturbed(0))
		if !s.servers[0].readOnly {
			if readOnly < switchoverTimeout || readOnly > switchoverTimeout+2*time.Second {
				t.Errorf("expected the primary to be read-only for about %s, found %s", switchoverTimeout, readOnly)
			}
			if !slices.ContainsFunc(p.Events, func(e decision.Event) bool { return e.Reason == "SwitchOverFailed" && e.Warning }) {
				t.Errorf("expected a warning, found %+v", p.Events)
			}
			return
		}
		readOnly += max(p.After, shortestInterval)
	}
	t.Error("expected the primary to become writable again, found it read-only")
}

func TestStopStartStopLosesNothing(t *testing.T) {
	a, s := healthyModel(t)
	s.stopAsked = true
	s, _ = a.runPass(s, undisturbed(0))
	s.stopAsked = false
	s.removePod(2)
	s.stopAsked = true // No pass has run since the last step.
	s, p := a.runPass(s, undisturbed(0))
	if p.Rule != "stopped" || !s.stop.reached {
		t.Errorf("expected clustering to be stopped still, found %q", p.Rule)
	}
	s.stopAsked = false
	s, p = a.runPass(s, undisturbed(0))
	if p.Rule != "started" || s.stop.reached {
		t.Errorf("expected clustering to be started, found %q", p.Rule)
	}
}

func TestManagerRestartDuringAStopChangesNothing(t *testing.T) {
	a, s := healthyModel(t)
	s.stopAsked = true
	s, _ = a.runPass(s, undisturbed(0))
	s.servers[0].readOnly = true // A user keeps the cluster read-only.
	s.servers[1].io, s.servers[2].sql = false, false
	s.history = modelHistory{}
	way, _ := a.runUntilQuiet(s)
	if acts := way[len(way)-1].listActions(); len(acts) != 0 {
		t.Errorf("expected no acts, found %q", acts)
	}
}

func TestFindStartRisks(t *testing.T) {
	type finding struct {
		Severity FindingSeverity
		Message  string
	}
	for name, row := range map[string]struct {
		in   Observed
		want []finding
	}{
		"a healthy cluster may be started": {healthyCluster(stopAsked, stopReached), nil},
		"errant transactions: the start is refused": {healthyCluster(withInstance(2, executed("0:1-9,2:1-2"))), []finding{
			{Refuse, "instance 2 has " + uuid(2) + ":1-2, which the primary lacks; a start isolates it"},
		}},
		"GTIDs ahead of the primary: the start is refused": {healthyCluster(withInstance(1, executed("0:1-9:12"))), []finding{
			{Refuse, "instance 1 has " + uuid(0) + ":12; the primary will use these GTIDs for other transactions, which this instance will skip"},
		}},
		"two writable instances: the start is refused": {healthyCluster(withInstance(1, writable)), []finding{
			{Refuse, "instance 1 is writable in addition to the primary; a start makes it read-only"},
		}},
		"a primary that lacks transactions: the start is refused": {healthyCluster(withInstance(0, readOnly, executed("0:1-8"))), []finding{
			{Refuse, "instance 0, the primary, lacks transactions that replicas have; a start fails over"},
		}},
		"a primary that does not answer: the start is refused": {healthyCluster(withInstance(0, podNotReady)), []finding{
			{Refuse, "instance 0, the primary, does not answer; a start fails over if the primary is down"},
		}},
		"a read-only primary: warning": {healthyCluster(withInstance(0, readOnly)), []finding{
			{Warn, "instance 0, the primary, is read-only; a start makes it writable"},
		}},
		"deleted binary logs: the start is refused": {healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-7") }), withInstance(1, executed("0:1-5"))), []finding{
			{Refuse, "instance 1 lacks " + parseTestSet("0:6-7").String() + ", which the primary has purged; the instance cannot follow, and a start does not change that"},
		}},
		"stopped threads: warnings, listed after refusals": {healthyCluster(withInstance(1, sqlFailed), withInstance(2, sqlStopped, executed("0:1-9,2:1"))), []finding{
			{Refuse, "instance 2 has " + uuid(2) + ":1, which the primary lacks; a start isolates it"},
			{Warn, "instance 1 stopped applying with error 1062; a start does not change that"},
			{Warn, "instance 2 has its SQL thread stopped; a start of clustering starts the thread"},
		}},
		"an empty instance: warning": {healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-7") }), withInstance(1, withoutData)), []finding{
			{Warn, "instance 1 is empty; a start makes it a copy of the primary"},
		}},
		"errant transactions of an isolated instance: warning": {healthyCluster(withInstance(2, executed("0:1-9,2:1"), ioStopped, unlabelled)), []finding{
			{Warn, "instance 2 has " + uuid(2) + ":1, which the primary lacks; the instance is already isolated"},
		}},
		"an instance that does not answer: warning": {healthyCluster(withInstance(1, podNotReady)), []finding{{Warn, "instance 1 does not answer and could not be checked"}}},
		"a status without a primary: warning":       {healthyCluster(func(o *Observed) { o.Primary = NoInstance }, withInstance(0, readOnly)), []finding{{Warn, "the status contains no primary; a start chooses one"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []finding
			for _, f := range findStartRisks(derive(row.in)) {
				got = append(got, finding{f.Severity, f.Message})
				if f.Remedy == "" {
					t.Errorf("expected a remedy for %q", f.Message)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// splitTestSet splits a text such as 0:1-3,1:5 and replaces each index with the UUID of that server.
func splitTestSet(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(text, ",") {
			index, rest, _ := strings.Cut(part, ":")
			if !yield(uuid(int(index[0]-'0')) + ":" + rest) {
				return
			}
		}
	}
}

// counted returns a history in which the primary and each replica had the given numbers of transactions.
func counted(primary, replicas int64) History {
	return History{Instances: []InstanceHistory{{Count: primary}, {Count: replicas}, {Count: replicas}}}
}

func TestUpdateHistory(t *testing.T) {
	earlier := modelTime().Add(-time.Second)
	long := modelTime().Add(-switchoverTimeout)
	for name, row := range map[string]struct {
		before History
		in     Observed
		want   History
	}{
		"healthy cluster: empty history":                                                    {History{StopAskedSince: earlier, ReadOnlySince: earlier}, healthyCluster(), History{Instances: make([]InstanceHistory, 3)}},
		"the time of a new stop request is recorded":                                        {History{}, healthyCluster(stopAsked), History{StopAskedSince: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"the time of a continuing stop request is kept":                                     {History{StopAskedSince: earlier}, healthyCluster(stopAsked), History{StopAskedSince: earlier, Instances: make([]InstanceHistory, 3)}},
		"the start time of a switchover is recorded":                                        {History{}, healthyCluster(withInstance(0, askedToStepDown, readOnly)), History{ReadOnlySince: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"read-only primary alone: no switchover is recorded":                                {History{}, healthyCluster(withInstance(0, readOnly)), History{Instances: make([]InstanceHistory, 3)}},
		"switchover that takes too long: the give-up is recorded":                           {History{ReadOnlySince: long}, healthyCluster(withInstance(0, askedToStepDown, readOnly)), History{ReadOnlySince: long, GaveUpAt: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"switchover with a hanging statement: the give-up is recorded":                      {History{}, healthyCluster(withInstance(0, askedToStepDown, statementPending(switchoverTimeout))), History{GaveUpAt: modelTime(), Instances: make([]InstanceHistory, 3)}},
		"the time of the primary's first missed answer is recorded":                         {History{}, healthyCluster(withInstance(0, doesNotAnswer)), History{Instances: []InstanceHistory{{UnreachableSince: modelTime(), Misses: 1}, {}, {}}}},
		"second missed answer of the primary: counted":                                      {History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 1}}}, healthyCluster(withInstance(0, doesNotAnswer)), History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 2}, {}, {}}}},
		"primary that is down: recorded as down":                                            {History{}, healthyCluster(withInstance(0, refusesConnections), withInstance(1, connecting)), History{Instances: []InstanceHistory{{UnreachableSince: modelTime(), Misses: 1, DownSince: modelTime()}, {NotReplicatingSince: modelTime(), ConnectingSince: modelTime()}, {}}}},
		"primary that is down, replicas fenced: stays recorded as down":                     {History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 1, DownSince: earlier}}}, healthyCluster(withInstance(0, refusesConnections)), History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 2, DownSince: earlier}, {}, {}}}},
		"primary from which replicas receive again: no longer recorded as down":             {History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 1, DownSince: earlier}}}, healthyCluster(withInstance(0, refusesConnections), hearThePrimary), History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 2}, {}, {}}}},
		"pass without an answer: the stall is kept":                                         {History{Instances: []InstanceHistory{{StalledSince: earlier}}}, healthyCluster(withInstance(0, doesNotAnswer)), History{Instances: []InstanceHistory{{UnreachableSince: modelTime(), Misses: 1, StalledSince: earlier}, {}, {}}}},
		"primary that answers again: missed answers are cleared":                            {History{Instances: []InstanceHistory{{UnreachableSince: earlier, Misses: 2}}}, healthyCluster(), History{Instances: make([]InstanceHistory, 3)}},
		"first pass with a waiting commit: the stall begins":                                {counted(9, 9), healthyCluster(withInstance(0, commitWaiting)), History{Instances: []InstanceHistory{{StalledSince: modelTime()}, {}, {}}}},
		"a commit waits and another one has completed: no stall":                            {counted(8, 9), healthyCluster(withInstance(0, commitWaiting)), History{Instances: make([]InstanceHistory, 3)}},
		"a commit that waits for something other than an acknowledgement: the stall begins": {counted(9, 9), healthyCluster(withInstance(0, func(s *Instance) { s.Owned = parseTestSet("0:10") })), History{Instances: []InstanceHistory{{StalledSince: modelTime()}, {}, {}}}},
		"replica that lacks transactions and receives nothing: the stall begins":            {counted(12, 9), healthyCluster(withInstance(0, executed("0:1-12"))), History{Instances: []InstanceHistory{{}, {StalledSince: modelTime()}, {StalledSince: modelTime()}}}},
		"replica that lacks transactions and receives: no stall":                            {counted(12, 8), healthyCluster(withInstance(0, executed("0:1-12"))), History{Instances: make([]InstanceHistory, 3)}},
		"the time at which a replica begins to connect is recorded":                         {counted(9, 9), healthyCluster(withInstance(1, connecting)), History{Instances: []InstanceHistory{{}, {NotReplicatingSince: modelTime(), ConnectingSince: modelTime()}, {}}}},
		"action that failed a second ago: the failure is kept":                              {History{Instances: []InstanceHistory{{FailedAt: earlier, Failure: "x", LastAction: "y"}}}, healthyCluster(), History{Instances: []InstanceHistory{{FailedAt: earlier, Failure: "x", LastAction: "y"}, {}, {}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, UpdateHistory(row.before, row.in), cmpopts.IgnoreFields(InstanceHistory{}, "Count"), cmpopts.IgnoreFields(History{}, "Acks")); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

// guaranteed sets the number of replicas that have every acknowledged commit according to the status.
func guaranteed(acks int) func(*Observed) {
	return func(o *Observed) { o.GuaranteedAcks = &acks }
}

func neverWrittenDown(o *Observed) { o.GuaranteedAcks = nil }

// awaited sets the history: the commits of instance 0 have waited for this number of replicas since it had the given
// transactions.
func awaited(acks int, before string) func(*Observed) {
	return func(o *Observed) { o.History.Acks = AcksRecord{acks, uuid(0), parseTestSet(before)} }
}

func givesUpWaiting(s *Instance)   { s.SemiSync.HasGivenUp = true }
func becomesReadOnly(s *Instance)  { s.SuperReadOnly = true }
func withoutPrimary(o *Observed)   { o.Primary = NoInstance }
func copiesOutside(o *Observed)    { o.Source = OneTimeOperation{Wanted: true, Done: true} }
func awaitsForAMinute(s *Instance) { s.SemiSync.Timeout = time.Minute }
func commitsNever(o *Observed)     { awaited(1, "0:1-9,0:12")(o) }

func TestGuaranteedAcksCountReplicasWithEarlierTransactions(t *testing.T) {
	for name, row := range map[string]struct {
		in   Observed
		want *int
	}{
		"a read-only primary and a status without a number: guaranteed acks unknown":                          {healthyCluster(neverWrittenDown, withInstance(0, readOnly)), nil},
		"a cluster without a primary: no replica is known to have every commit":                               {healthyCluster(neverWrittenDown, withoutPrimary), new(0)},
		"a healthy cluster created by an older version: one replica has every commit":                         {healthyCluster(neverWrittenDown, awaited(1, "0:1-9")), new(1)},
		"a cluster created by an older version, possibly scaled up: no replica is known to have every commit": {healthyCluster(neverWrittenDown, withInstance(0, awaitsNobody)), new(0)},
		"a cluster of an older version whose replicas lag: guaranteed acks stay unknown":                      {healthyCluster(neverWrittenDown, awaited(1, "0:1-10"), withInstance(0, executed("0:1-10"))), nil},
		"replicas that have the earlier transactions: guaranteed acks grow":                                   {healthyCluster(guaranteed(0), awaited(1, "0:1-9")), new(1)},
		"replicas that lack earlier transactions: guaranteed acks unchanged":                                  {healthyCluster(guaranteed(0), awaited(1, "0:1-10"), withInstance(0, executed("0:1-10"))), new(0)},
		"a replica that has received the earlier transactions counts":                                         {healthyCluster(guaranteed(0), awaited(1, "0:1-10"), withInstance(0, executed("0:1-10")), withInstance(2, withUnappliedRelayLog)), new(1)},
		"a transaction that never commits is ignored":                                                         {healthyCluster(guaranteed(0), commitsNever), new(1)},
		"a new manager without a history: guaranteed acks unchanged":                                          {healthyCluster(guaranteed(0)), new(0)},
		"a new manager keeps the guaranteed acks of the status":                                               {healthyCluster(guaranteed(1)), new(1)},
		"commits that no longer wait: 0 guaranteed acks":                                                      {healthyCluster(guaranteed(1), awaited(0, "0:1-9"), withInstance(0, awaitsNobody)), new(0)},
		"a wait for acknowledgements that has timed out: 0 guaranteed acks":                                   {healthyCluster(guaranteed(1), awaited(0, "0:1-9"), withInstance(0, givesUpWaiting)), new(0)},
		"commits that stop waiting after a minute: 0 guaranteed acks":                                         {healthyCluster(guaranteed(1), awaited(0, "0:1-9"), withInstance(0, awaitsForAMinute)), new(0)},
		"a primary that becomes read-only: guaranteed acks unchanged":                                         {healthyCluster(guaranteed(1), withInstance(0, becomesReadOnly, awaitsNobody)), new(1)},
		"a primary that has just restarted: guaranteed acks unchanged":                                        {healthyCluster(guaranteed(1), withInstance(0, serverRestarted)), new(1)},
		"a primary that does not answer: guaranteed acks unchanged":                                           {healthyCluster(guaranteed(1), withInstance(0, doesNotAnswer)), new(1)},
		"a copy of an external server: 0 guaranteed acks":                                                     {healthyCluster(guaranteed(1), copiesOutside), new(0)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Decide(row.in).GuaranteedAcks); diff != "" {
				t.Errorf("guaranteed acknowledgements (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFewerAcksAreRecordedFirst covers a primary whose setting was changed by a user. The lower number is recorded
// before the setting is restored, because the manager may be killed after each pass.
func TestFewerAcksAreRecordedFirst(t *testing.T) {
	in := healthyCluster(guaranteed(1), awaited(0, "0:1-9"), withInstance(0, awaitsNobody))
	first := Decide(in)
	if _, idle := first.Do.(Nothing); !idle || first.Rule != "commits wait for fewer replicas than guaranteed" {
		t.Errorf("expected no action before the number is recorded, found %q: %v", first.Rule, first.Do)
	}
	in.GuaranteedAcks = first.GuaranteedAcks
	if then := Decide(in); then.Do != Action(ConfigurePrimary{Index: 0, WaitFor: 1}) {
		t.Errorf("expected the primary to be configured then, found %q: %v", then.Rule, then.Do)
	}
}

func TestTransactionsBeforeAwaitedCommitsAreRecorded(t *testing.T) {
	for name, row := range map[string]struct {
		in         Observed
		wantAcks   int
		wantBefore string
	}{
		"commits begin to wait for a replica: the transactions before them are recorded": {healthyCluster(), 1, "0:1-9"},
		"a commit in progress counts as a transaction before the awaited commits":        {healthyCluster(withInstance(0, commitWaiting)), 1, "0:1-10"},
		"commits that have already waited for a replica: the record is unchanged":        {healthyCluster(awaited(1, "0:1-5")), 1, "0:1-5"},
		"commits that no longer wait end the record":                                     {healthyCluster(awaited(1, "0:1-5"), withInstance(0, awaitsNobody)), 0, "0:1-9"},
		"a read-only primary resets the record":                                          {healthyCluster(awaited(1, "0:1-5"), withInstance(0, readOnly)), 0, "0:1-9"},
		"a primary that does not answer resets the record":                               {healthyCluster(awaited(1, "0:1-5"), withInstance(0, doesNotAnswer)), 0, ""},
		"a primary with a lost volume resets the record":                                 {healthyCluster(awaited(1, "0:1-5"), withInstance(0, func(s *Instance) { s.UUID = uuid(7) })), 1, "0:1-9"},
	} {
		t.Run(name, func(t *testing.T) {
			found := UpdateHistory(row.in.History, row.in).Acks
			want := gtid.Set{}
			if row.wantBefore != "" {
				want = parseTestSet(row.wantBefore)
			}
			if found.InForce != row.wantAcks || found.Before.String() != want.String() {
				t.Errorf("expected %d since %s, found %d since %s", row.wantAcks, want, found.InForce, found.Before)
			}
		})
	}
}

// TestFailoversDependOnAcknowledgedCommits takes away the primary of a cluster with three instances, two of which may
// have just been added.
func TestFailoversDependOnAcknowledgedCommits(t *testing.T) {
	for name, row := range map[string]struct {
		acks     func(*Observed)
		wantRule string
		wantSaid string
	}{
		"one replica with every acknowledged commit: the failover begins":           {guaranteed(1), "fence for a failover", "waits for the replicas to be fenced"},
		"a status without guaranteed acks: the failover begins":                     {neverWrittenDown, "fence for a failover", "waits for the replicas to be fenced"},
		"a status with more guaranteed acks than awaited acks: the failover begins": {guaranteed(5), "fence for a failover", "waits for the replicas to be fenced"},
		"no replica is known to have every commit: no failover":                     {guaranteed(0), "primary has failed", "the primary may be the only instance with the acknowledged commits; bring the primary back, or see docs/clustering.md if the primary is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(healthyCluster(row.acks, withInstance(0, podNotReady)))
			if p.Rule != row.wantRule || !strings.Contains(p.Healthy.Message, row.wantSaid) {
				t.Errorf("expected %q with message %q, found %q: %s", row.wantRule, row.wantSaid, p.Rule, p.Healthy.Message)
			}
		})
	}
}

func TestWithResult(t *testing.T) {
	start := modelTime()
	m := History{}.WithResult(StartIO{Index: 1}, start, "")
	if past := m.Instances[1]; !past.FailedAt.IsZero() {
		t.Errorf("expected the first act to count as a success, found %+v", past)
	}
	if past := m.WithResult(StartIO{Index: 1}, start, "").Instances[1]; past.FailedAt != start {
		t.Errorf("expected the same act again not to have helped, found %+v", past)
	}
	if past := m.WithResult(RestartSQL{Index: 1}, start, "").Instances[1]; !past.FailedAt.IsZero() {
		t.Errorf("expected another act to count as a success, found %+v", past)
	}
	two := m.WithResult(StopIO{Indexes: []int{0, 2}}, start, "no answer")
	if two.Instances[0].Failure != "no answer" || two.Instances[2].FailedAt != start || two.Instances[1].Failure != "" {
		t.Errorf("expected a failure on the two that were touched, found %+v", two.Instances)
	}
	if len(m.Instances) != 2 {
		t.Errorf("expected the history before to be untouched, found %+v", m)
	}
}

// TestRecloneReportsDiscardedTransactions checks that the status lists the transactions that only the re-cloned instance
// has, and that the event says which of them a primary may have acknowledged.
func TestRecloneReportsDiscardedTransactions(t *testing.T) {
	const isRecloned = "Instance 2 is re-cloned from instance 0"
	for name, row := range map[string]struct {
		executed, discards, note string
	}{
		"an errant replica: not acknowledged by a primary": {
			"0:1-9,2:1", "2:1", isRecloned + "; the instance had " + uuid(2) + ":1, which the primary does not have and no primary has acknowledged to a client; " +
				"status.instances lists these transactions",
		},
		"a replica that is ahead: possibly acknowledged": {
			"0:1-10", "0:10", isRecloned + "; the instance had " + uuid(0) + ":10, which the primary may have acknowledged and lost; " +
				"status.instances lists these transactions",
		},
		"an errant replica that is ahead: both are listed": {
			"0:1-10,2:1", "0:10,2:1", isRecloned + "; the instance had " + uuid(0) + ":10, which the primary may have acknowledged and lost; the instance had " +
				uuid(2) + ":1, which the primary does not have and no primary has acknowledged to a client; status.instances lists these transactions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := healthyCluster(withInstance(2, askedToReclone, executed(row.executed), unlabelled))
			if strings.Contains(row.executed, ",") {
				ioStopped(&o.Instances[2]) // An errant replica is isolated first.
			}
			o.Instances[2].Discarded = Decide(o).Instances[2].Discarded
			p := Decide(o)
			if got, want := o.Instances[2].Discarded, parseTestSet(row.discards); !got.Equal(want) {
				t.Errorf("expected the record %s, found %s", want, got)
			}
			if len(p.Events) != 1 || p.Events[0].Reason != EventRecloned || p.Events[0].Note != row.note {
				t.Errorf("expected the event %q, found %+v", row.note, p)
			}
		})
	}
}

// TestRotationEmitsOneEvent requests a second rotation before the old passwords are discarded. The second request
// changes nothing and emits no event.
func TestRotationEmitsOneEvent(t *testing.T) {
	for name, row := range map[string]struct {
		in   Observed
		want string
	}{
		"the promotion of new passwords emits an event":                {healthyCluster(rotating("r", false), knowingAll()), EventPasswordsRotated},
		"a second rotation before the end of the first emits no event": {healthyCluster(rotating("r", true), knowingAll()), ""},
		"the discard of the old passwords emits an event":              {healthyCluster(discarding(time.Hour)), EventPasswordsDiscarded},
	} {
		t.Run(name, func(t *testing.T) {
			found := ""
			for _, event := range Decide(row.in).Events {
				found += event.Reason
			}
			if found != row.want {
				t.Errorf("expected the event %q, found %q", row.want, found)
			}
		})
	}
}
