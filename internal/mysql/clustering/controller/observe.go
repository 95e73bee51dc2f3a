// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// readTimeout limits each query of one server in an observation.
const readTimeout = 2 * time.Second

// errNoConnection is returned if an instance has no Pod with an address, or a Secret for the connection cannot be read.
var errNoConnection = errors.New("there is no connection to the instance")

// observation is the result of the observation in a pass, with the handles that actions need.
type observation struct {
	clustering.Observed
	cluster   *mocov1beta2.MySQLCluster
	startedAt time.Time
	switches  mysqlswitches.Switches
	// The following fields are empty for a cluster whose servers are not observed.
	clusterConns *clusterConns
	pods         []*corev1.Pod
	conns        []*instanceConn
	facts        []sqlclient.ServerFacts
	// readSecret reads the Secret with the cluster's passwords, at most once per pass.
	readSecret func() (*corev1.Secret, error)
	// outside is the external server that the cluster is cloned from and follows. It is empty if no server is
	// configured, or its Secret cannot be read or is invalid.
	outside clustering.OutsideSource
	// channelPassword is the hash of the password that channels should have. It is empty unless a requested rotation
	// has begun.
	channelPassword string
	// requiresTLS means that every Pod has a certificate, so accounts that log in over the network must use TLS.
	requiresTLS bool
	// isRotationUnread means that the rotation of an instance's accounts was not read, because a commit waits there or
	// the query failed.
	isRotationUnread atomic.Bool
	// passwordProblem is the last error about a Secret of the cluster or about opening a connection. It is empty if
	// there was none.
	passwordProblem string
}

// observe reads everything that the decision uses: the replicas, then the primary. Data that cannot be read is omitted,
// so a stop takes effect regardless of failures.
func (c Controller) observe(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (*observation, error) {
	n := cluster.InstanceCount()
	seen := &observation{
		cluster: cluster, startedAt: c.Clock.Now(),
		pods: make([]*corev1.Pod, n), conns: make([]*instanceConn, n), facts: make([]sqlclient.ServerFacts, n),
	}
	seen.switches = mysqlswitches.Read(cluster, seen.startedAt)
	seen.Observed = observeObject(cluster, seen.switches, c.Waits, seen.startedAt)
	if seen.IsBeingDeleted || seen.IsStopOverdue && seen.Stop == nil {
		return seen, nil
	}
	seen.clusterConns = c.conns.connsOf(cluster)
	seen.readSecret = sync.OnceValues(func() (*corev1.Secret, error) { return c.readSecret(ctx, cluster, cluster.ChildName()) })
	seen.clusterConns.collectResults(c.Clock.Now())
	c.observePods(ctx, seen)
	if seen.clusterConns.isCacheBehind(seen.pods) {
		return nil, reconcile.ErrStale
	}
	c.observeRotation(ctx, seen)
	c.observeSource(ctx, seen)
	c.connect(ctx, seen)
	c.observeServers(ctx, seen)
	if seen.isRotationUnread.Load() {
		seen.Rotation = clustering.PasswordRotation{} // A later pass continues the rotation.
	}
	seen.Now = c.Clock.Now()
	seen.History = clustering.UpdateHistory(seen.clusterConns.history, seen.Observed)
	seen.clusterConns.history = seen.History
	seen.watchPrimary(ctx)
	seen.watchReplicas(ctx)
	return seen, nil
}

func (c Controller) observePods(ctx context.Context, seen *observation) {
	var list corev1.PodList
	err := c.pods.List(ctx, &list, client.InNamespace(seen.cluster.Namespace), client.MatchingLabels{mocov1beta2.InstanceLabel: seen.cluster.Name})
	if err != nil { // The pass continues without Pods, because a stop is reached even if no instance can be observed.
		log.FromContext(ctx).Error(err, "Pods cannot be listed")
	}
	stopped, _ := mysqlswitches.ParseStoppedInstances(seen.cluster)
	seen.requiresTLS = true
	for i := range seen.pods {
		name := seen.cluster.PodName(i)
		if at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Name == name }); at >= 0 {
			seen.pods[i] = &list.Items[at]
		}
		seen.Instances[i] = clustering.Instance{
			Host: c.HostOf(seen.cluster, i, seen.pods[i]), Port: sqlclient.Port, Pod: podFacts(seen.pods[i]),
			TLSSecret: tlsSecretOf(seen.pods[i]),
			Stopped:   slices.Contains(stopped, i), KnownErrant: slices.Contains(seen.cluster.Status.ErrantReplicaList, i),
			Discarded: discardedOf(seen.cluster, i),
		}
		seen.requiresTLS = seen.requiresTLS && seen.Instances[i].TLSSecret != ""
	}
}

// discardedOf returns the transactions that an instance lost in re-clones, according to the status.
func discardedOf(cluster *mocov1beta2.MySQLCluster, i int) gtid.Set {
	at := slices.IndexFunc(cluster.Status.Instances, func(s mocov1beta2.InstanceStatus) bool { return s.Ordinal == i })
	if at < 0 {
		return gtid.Set{}
	}
	set, _ := gtid.Parse(cluster.Status.Instances[at].DiscardedGTIDs) // A value that cannot be parsed counts as the empty set.
	return set
}

// connect sets the connections to the instances, and opens missing ones.
func (c Controller) connect(ctx context.Context, seen *observation) {
	for i, pod := range seen.pods {
		conn, err := seen.clusterConns.connect(i, pod, func() (*sqlclient.Server, error) { return c.openServer(ctx, seen, i) })
		if err != nil {
			seen.passwordProblem = err.Error()
		}
		seen.conns[i] = conn
	}
}

// openServer prepares the connections to an instance. If its Pod has a certificate, the connections accept only a
// server certificate that a CA of the cluster signed.
func (c Controller) openServer(ctx context.Context, seen *observation, i int) (*sqlclient.Server, error) {
	password, err := seen.password(mysqlusers.AdminUser)
	if err != nil {
		return nil, err
	}
	var trust *tls.Config
	if name := tlsSecretOf(seen.pods[i]); name != "" {
		secret, err := c.readSecret(ctx, seen.cluster, name)
		if err == nil {
			trust, err = certificates.BuildClientConfig(secret.Data[certificates.AuthorityFile], seen.Instances[i].Host)
		}
		if err != nil {
			return nil, fmt.Errorf("use the Secret %s: %w", name, err)
		}
	}
	server, err := sqlclient.OpenServer(seen.pods[i].Status.PodIP, sqlclient.Account{Name: mysqlusers.AdminUser, Password: password}, trust)
	if err != nil {
		return nil, fmt.Errorf("open instance %d: %w", i, err)
	}
	return server, nil
}

// tlsSecretOf returns the name of the Secret with the certificate of a Pod, or "" for a Pod without one.
func tlsSecretOf(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mocov1beta2.TLSVolume && v.Secret != nil })
	if at < 0 {
		return ""
	}
	return pod.Spec.Volumes[at].Secret.SecretName
}

// observeServers reads the replicas in parallel, and then the primary.
//
// Invariant: when a replica is read before the primary, the primary has executed, or is committing, every transaction
// that the replica has received from it. Otherwise a transaction in flight would appear to exist only in the replica.
// The model test observes in the same order, with events in between.
func (c Controller) observeServers(ctx context.Context, seen *observation) {
	var replicas sync.WaitGroup
	for i := range seen.conns {
		if i != seen.Primary {
			replicas.Go(func() { seen.observeServer(ctx, i, c.Clock.Now()) })
		}
	}
	replicas.Wait()
	if seen.Primary != clustering.NoInstance && seen.Primary < len(seen.conns) {
		seen.observeServer(ctx, seen.Primary, c.Clock.Now())
	}
}

func (s *observation) observeServer(ctx context.Context, i int, now time.Time) {
	conn := s.conns[i]
	if conn == nil || conn.isSilent.Load() { // A failover takes many passes, and each of them would wait for an unresponsive server.
		return
	}
	facts, err := conn.readFacts(ctx)
	if err == nil {
		err = setServerFacts(&s.Instances[i], facts)
		s.Instances[i].CertificateIsAging = !facts.CertificateUntil.IsZero() && certificates.IsAging(facts.CertificateFrom, facts.CertificateUntil, now)
		s.Instances[i].Channel.IsOutside = s.leadsOutside(facts.Replication)
		s.Instances[i].Channel.HasOldPassword = s.channelPassword != "" && facts.Replication != nil && facts.Replication.PasswordHash != s.channelPassword
	}
	if err != nil {
		log.FromContext(ctx).V(1).Info("Instance not read", keyInstance, i, keyError, describeError(err))
		s.Instances[i].Refused = sqlclient.IsConnectionRefused(err)
		switch {
		case sqlclient.IsPasswordExpired(err):
			s.Instances[i].ExpiredAccounts = []string{mysqlusers.AdminUser}
		case sqlclient.IsAccessDenied(err), sqlclient.IsUntrusted(err):
			s.clusterConns.forgetInstance(i)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			s.clusterConns.awaitAnswer(ctx, conn)
		}
		return
	}
	s.facts[i] = facts
	if i == s.Primary && facts.SemiSync.Waiting == 0 { // A waiting session may run a GRANT, and the query would wait for it.
		s.Instances[i].HasOldAccounts, s.Instances[i].ExpiredAccounts = conn.observeAccounts(ctx, now, mysqlusers.CurrentVersion(s.requiresTLS))
	}
	if s.Rotation.IsWanted() && !s.readRotation(ctx, i) {
		s.isRotationUnread.Store(true)
	}
	if conn.action.isRunning() {
		setRunningAction(&s.Instances[i], conn.action, now)
	}
}

// readRotation reads the ID of the rotation that gave the instance's accounts a second password, and reports whether
// the query succeeded. It reads nothing while a commit waits for an acknowledgement, because this commit could block
// the query.
func (s *observation) readRotation(ctx context.Context, i int) bool {
	if s.facts[i].SemiSync.Waiting > 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rotation, err := s.conns[i].server.ReadRotation(ctx)
	s.Instances[i].Rotation = rotation
	return err == nil
}

// watchPrimary watches the connection to the primary while clustering is active.
func (s *observation) watchPrimary(ctx context.Context) {
	if s.Primary == clustering.NoInstance || s.Primary >= len(s.conns) || !s.Instances[s.Primary].Reachable || s.Stop != nil {
		s.clusterConns.watch(ctx, nil)
		return
	}
	s.clusterConns.watch(ctx, s.conns[s.Primary])
}

// watchReplicas watches the replicas that apply transactions. All watches are cancelled before a stop is reached,
// because after that no statement of the manager may wait in the servers.
func (s *observation) watchReplicas(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var ending []*replicationWatch
	for i, conn := range s.conns {
		switch {
		case conn == nil:
		case s.NeedsReplicationWatch(i):
			s.Instances[i].IsUnwatched = !s.clusterConns.watchReplication(ctx, conn)
		case s.Instances[i].Reachable || s.StopAsked:
			ending = append(ending, s.clusterConns.unwatchReplication(conn))
		}
	}
	for _, watch := range ending {
		if watch.isRunning() && s.StopAsked {
			select {
			case <-watch.ended:
			case <-ctx.Done():
			}
		}
	}
}

// secretError is an error about a Secret. Its text is stable and contains no value of the Secret.
type secretError struct {
	problem string
	// cause is the API server's error. It is nil if the content of the Secret is wrong.
	cause error
}

func (e secretError) Error() string {
	if e.cause == nil {
		return e.problem
	}
	return fmt.Sprintf("%s: %s", e.problem, e.cause)
}

func (e secretError) Unwrap() error { return e.cause }

func (s *observation) password(user string) (string, error) {
	key := mysqlusers.PasswordKeyOf(user)
	secret, err := s.readSecret()
	if err != nil {
		return "", err
	}
	return findPassword(secret.Name, secret.Data, key)
}

// newestPassword returns the newest password of an account. From the first step of a rotation on, this is the new
// password, even before the servers accept it.
func (s *observation) newestPassword(user string) (string, error) {
	secret, err := s.readSecret()
	if err != nil {
		return "", err
	}
	return findPassword(secret.Name, mysqlusers.PromoteNextPasswords(secret.Data), mysqlusers.PasswordKeyOf(user))
}

// acceptedPassword returns the newest password of an account that every server accepts. During a rotation, this is the
// new password once all instances have executed the password change, and until then the current one.
func (s *observation) acceptedPassword(user string) (string, error) {
	isBehind := func(i clustering.Instance) bool { return i.Rotation != s.Rotation.ID }
	if s.Rotation.ID == "" || slices.ContainsFunc(s.Instances, isBehind) {
		return s.password(user)
	}
	return s.newestPassword(user)
}

func findPassword(secret string, data map[string][]byte, key string) (string, error) {
	if len(data[key]) == 0 {
		return "", secretError{problem: fmt.Sprintf("the Secret %s: expected a password under the key %s, found none; add it", secret, key)}
	}
	return string(data[key]), nil
}

func (c Controller) readSecret(ctx context.Context, cluster *mocov1beta2.MySQLCluster, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var s corev1.Secret
	err := c.live.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: name}, &s)
	if client.IgnoreNotFound(err) != nil {
		return nil, secretError{fmt.Sprintf("the Secret %s cannot be read", name), err}
	}
	if err != nil {
		return nil, secretError{problem: fmt.Sprintf("expected the Secret %s, found none; restore it", name)}
	}
	return &s, nil
}

// The functions below convert objects and server facts to the input of the decision.

func observeObject(cluster *mocov1beta2.MySQLCluster, switches mysqlswitches.Switches, waits clustering.FailoverWaits, now time.Time) clustering.Observed {
	spec, status := cluster.Spec, cluster.Status
	return clustering.Observed{
		IsBeingDeleted: !cluster.DeletionTimestamp.IsZero(),
		IsStopOverdue:  switches.Clustering.IsOverdue || switches.Instances.IsOverdue, IsOtherStopOverdue: switches.Instances.IsOverdue && !switches.Clustering.IsOverdue,
		Waits: waits, Replicas: cluster.InstanceCount(), Offline: mysqlswitches.ApplyScheduled(cluster, now).Spec.Offline,
		Source:    clustering.OneTimeOperation{Wanted: spec.SourceSecretName() != "", Done: status.Cloned},
		Restore:   clustering.OneTimeOperation{Wanted: spec.Restore != nil, Done: status.RestoredTime != nil},
		StopAsked: cluster.ClusteringStopped(), StartForced: cluster.Annotations[mocov1beta2.ForceStartAnnotation] == "true",
		ReclonesErrant: cluster.Annotations[mocov1beta2.RecloneAnnotation] == mocov1beta2.RecloneErrant,
		HasLeftovers:   len(listLeftovers(cluster, switches)) > 0, Stop: stopRecord(cluster), MaxDelay: maxDelay(cluster),
		MaxDelayForDeletion: maxDelayForDeletion(cluster),
		Primary:             primaryOf(cluster), GuaranteedAcks: status.GuaranteedAcknowledgements, Instances: make([]clustering.Instance, cluster.InstanceCount()),
	}
}

// maxDelay returns the maximum lag of a replica that serves clients.
func maxDelay(cluster *mocov1beta2.MySQLCluster) time.Duration {
	if cluster.Spec.MaxDelaySeconds == nil {
		return 0
	}
	return time.Duration(*cluster.Spec.MaxDelaySeconds) * time.Second
}

// maxDelayForDeletion returns the maximum lag of a replica at which the primary's Pod may be deleted.
func maxDelayForDeletion(cluster *mocov1beta2.MySQLCluster) time.Duration {
	const maxSeconds = math.MaxInt64 / int64(time.Second)
	return time.Duration(min(cluster.Spec.MaxDelaySecondsForPodDeletion, maxSeconds)) * time.Second
}

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
	_, isProtected := pod.Annotations[mocov1beta2.PreventDeleteAnnotation]
	return clustering.PodFacts{
		Exists: true, Protected: isProtected, Ready: isReady(pod), Terminating: !pod.DeletionTimestamp.IsZero(),
		Demote: pod.Annotations[mocov1beta2.DemoteAnnotation] == "true", Reclone: pod.Annotations[mocov1beta2.RecloneAnnotation] == "true",
		Role: clustering.PodRole(pod.Labels[mocov1beta2.RoleLabel]),
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func setServerFacts(s *clustering.Instance, f sqlclient.ServerFacts) error {
	var sets [4]gtid.Set
	texts := [4]string{f.Executed, f.Purged, f.Owned}
	if f.Replication != nil {
		texts[3] = f.Replication.Retrieved
	}
	for i, text := range texts {
		set, err := gtid.Parse(text)
		if err != nil {
			return fmt.Errorf("parse a GTID set: %w", err)
		}
		sets[i] = set
	}
	s.Reachable, s.UUID, s.Series = true, f.UUID, parseSeries(f.Version)
	s.Pending, s.PendingFor = f.Pending, f.PendingFor
	s.ReadOnly, s.SuperReadOnly = f.ReadOnly, f.SuperReadOnly
	s.Executed, s.Purged, s.Owned = sets[0], sets[1], sets[2]
	s.SemiSync = clustering.SemiSync{
		Source: f.SemiSync.Source, Replica: f.SemiSync.Replica, ReplicaActive: f.SemiSync.ReplicaActive,
		WaitFor: f.SemiSync.WaitFor, Timeout: f.SemiSync.Timeout, Waiting: f.SemiSync.Waiting, HasGivenUp: f.SemiSync.HasGivenUp,
	}
	s.Connected, s.Weakened = f.Connected, f.Weakened
	s.Clone = map[string]clustering.CloneState{
		"In Progress": clustering.Cloning, "Completed": clustering.Cloned, "Failed": clustering.CloneFailed,
	}[f.Clone]
	if f.Replication != nil {
		s.Channel = parseChannel(*f.Replication, sets[3])
	}
	return nil
}

func parseChannel(r sqlclient.ReplicationFacts, retrieved gtid.Set) clustering.ReplicationChannel {
	c := clustering.ReplicationChannel{
		Present: true, SourceHost: r.SourceHost, SourcePort: r.SourcePort, IsVerified: r.IsVerified, IOErrno: r.IOErrno, SQLErrno: r.SQLErrno, Lag: r.Lag, HeardAgo: r.HeardAgo, Retrieved: retrieved,
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
	if !r.IO || !r.SQL { // The lag can be measured only while both threads run.
		c.Lag = -1
	}
	return c
}

// setRunningAction adds the action that this manager still runs on the instance. The server does not report the action
// at every moment.
func setRunningAction(s *clustering.Instance, action *asyncAction, now time.Time) {
	if _, isClone := action.do.(clustering.CloneFrom); isClone {
		s.Clone = clustering.Cloning // The server may not have started the clone yet.
		return
	}
	s.Pending, s.PendingFor = true, max(s.PendingFor, now.Sub(action.startedAt))
}

// parseSeries returns the release series of a version such as 8.4.8-log.
func parseSeries(version string) clustering.ReleaseSeries {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var s clustering.ReleaseSeries
	s.Major, _ = strconv.Atoi(major) // A version that cannot be parsed counts as the oldest.
	s.Minor, _ = strconv.Atoi(minor)
	return s
}
