// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// lostBuffer is the capacity of connManager.lost.
const lostBuffer = 1024

// failedWatchInterval is the minimum time between passes that failing watches of one server trigger. The regular passes
// observe such a server too.
const failedWatchInterval = time.Minute

// errClosed is returned after the controller has stopped.
var errClosed = errors.New("the controller has stopped")

// connManager holds the connections to every cluster's servers, and the history of clustering between passes. After a
// restart of the manager, the connections are opened again and the history contains only the start of a stop.
type connManager struct {
	clock clock.PassiveClock
	// onClone is called when a clone has ended.
	onClone func(name types.NamespacedName, i int, took time.Duration, err error)
	// lost receives clusters that need a pass soon: the connection to the primary is lost, a server responds again, or
	// a replica stopped applying.
	lost chan event.GenericEvent

	mu       sync.Mutex
	closed   bool
	clusters map[types.NamespacedName]*clusterConns
	// goroutines counts the goroutines of all clusters.
	goroutines sync.WaitGroup
}

func newConnManager(c clock.PassiveClock) *connManager {
	return &connManager{
		clock: c, lost: make(chan event.GenericEvent, lostBuffer), clusters: map[types.NamespacedName]*clusterConns{},
		onClone: func(types.NamespacedName, int, time.Duration, error) {},
	}
}

// Start implements manager.Runnable. It returns when ctx has ended and every connection is closed.
func (m *connManager) Start(ctx context.Context) error {
	<-ctx.Done()
	m.mu.Lock()
	m.closed = true
	for _, c := range m.clusters {
		c.closeAll()
	}
	clear(m.clusters)
	m.mu.Unlock()
	m.goroutines.Wait()
	return nil
}

// connsOf returns the connections and history of a cluster. A cluster with the same name and another UID is a different
// cluster.
func (m *connManager) connsOf(cluster *mocov1beta2.MySQLCluster) *clusterConns {
	name := client.ObjectKeyFromObject(cluster)
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clusters[name]
	if c != nil && c.uid == cluster.UID {
		return c
	}
	if c != nil {
		c.closeAll()
	}
	c = &clusterConns{manager: m, name: name, uid: cluster.UID, instances: map[int]*instanceConn{}, stalePodVersions: map[int]string{}, closed: m.closed}
	// If an earlier manager began a stop, the time limit of the stop still counts from that time.
	if p := cluster.Status.Pause; p != nil && p.Clustering != nil {
		c.history.StopAskedSince = p.Clustering.Since.Time
	}
	if !m.closed {
		m.clusters[name] = c
	}
	return c
}

func (m *connManager) forgetCluster(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clusters[name]; c != nil {
		c.closeAll()
		delete(m.clusters, name)
	}
}

// clusterConns holds the connections and history of one cluster. Passes of the cluster do not overlap. Only closeAll
// and the goroutines of watches may run concurrently with a pass.
type clusterConns struct {
	manager *connManager
	name    types.NamespacedName
	uid     types.UID
	history clustering.History
	// progressSavedAt is when the transactions of the instances were last saved in the status.
	progressSavedAt time.Time
	// stalePodVersions holds, by index, the Pod resource versions that this manager's own writes have replaced.
	stalePodVersions map[int]string

	mu        sync.Mutex
	closed    bool
	instances map[int]*instanceConn
	watched   *instanceConn
	unwatch   context.CancelFunc
}

type instanceConn struct {
	pod     types.UID
	address string
	server  *sqlclient.Server
	action  *asyncAction
	// accountsReadAt is the time at which the accounts last had the version accountsWanted, or could not be read.
	accountsReadAt time.Time
	accountsWanted string
	// isSilent means that a goroutine waits for the server to respond. stopWaiting cancels that wait.
	isSilent    atomic.Bool
	stopWaiting context.CancelFunc
	isClosed    bool
	// replicationWatch waits until the server stops applying transactions. It is nil if the instance is not watched.
	replicationWatch *replicationWatch
	// failedWatches limits how often failing watches trigger a pass.
	failedWatches *rate.Limiter
}

// replicationWatch is one statement that waits in a replica's server.
type replicationWatch struct {
	cancel context.CancelFunc
	// ended is closed when the statement has ended, including in the server.
	ended chan struct{}
}

// readFacts queries the server, with a timeout.
func (c *instanceConn) readFacts(ctx context.Context) (sqlclient.ServerFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return c.server.ReadFacts(ctx)
}

// accountsInterval is the poll interval of accounts that need no change.
const accountsInterval = time.Minute

// observeAccounts reports whether the accounts do not have the version wanted, or have passwords that can expire or
// have expired, and returns the accounts whose passwords have expired.
func (c *instanceConn) observeAccounts(ctx context.Context, now time.Time, wanted string) (areOld bool, expired []string) {
	if wanted == c.accountsWanted && now.Sub(c.accountsReadAt) < accountsInterval {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := c.server.ReadAccounts(ctx, mysqlusers.Names())
	if err == nil && (found.Version != wanted || found.MayExpire || len(found.Expired) > 0) {
		return true, found.Expired
	}
	c.accountsReadAt, c.accountsWanted = now, wanted
	return false, nil
}

// awaitAnswer queries an unresponsive server until it responds, and then triggers a pass. Until then no pass queries
// the server.
func (c *clusterConns) awaitAnswer(ctx context.Context, conn *instanceConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.isClosed || !conn.isSilent.CompareAndSwap(false, true) {
		return
	}
	ctx, conn.stopWaiting = context.WithCancel(context.WithoutCancel(ctx)) // The wait may last longer than the pass.
	c.manager.goroutines.Go(func() {
		for {
			// Any other error ends the wait, and the next pass handles the error.
			if _, err := conn.readFacts(ctx); ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
		conn.isSilent.Store(false)
		c.requestLook()
	})
}

// requestLook enqueues the cluster for a pass.
func (c *clusterConns) requestLook() {
	select {
	case c.manager.lost <- event.GenericEvent{Object: &mocov1beta2.MySQLCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.name.Namespace, Name: c.name.Name},
	}}:
	default: // The queue of waiting clusters is full. The regular pass of this cluster will follow.
	}
}

func (c *clusterConns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.stopWatching()
	for i := range c.instances {
		c.closeInstance(i)
	}
}

// closeInstance closes the connections to an instance. The caller must hold the lock.
func (c *clusterConns) closeInstance(i int) {
	conn := c.instances[i]
	if conn == nil {
		return
	}
	if c.watched == conn {
		c.stopWatching()
	}
	if conn.action != nil {
		conn.action.cancel()
	}
	conn.isClosed = true
	if conn.stopWaiting != nil {
		conn.stopWaiting()
	}
	if conn.replicationWatch != nil {
		conn.replicationWatch.cancel()
	}
	_ = conn.server.Close() // The connections are dropped even if they do not close cleanly.
	delete(c.instances, i)
}

// forgetInstance closes the connections to an instance, whose password may have changed.
func (c *clusterConns) forgetInstance(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeInstance(i)
}

// connect returns the connection to the server of a Pod, and opens it if needed. It returns nil if the Pod has no
// address.
func (c *clusterConns) connect(i int, pod *corev1.Pod, open func() (*sqlclient.Server, error)) (*instanceConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if conn := c.instances[i]; conn != nil && pod != nil && conn.pod == pod.UID && conn.address == pod.Status.PodIP {
		return conn, nil
	}
	c.closeInstance(i)
	if pod == nil || pod.Status.PodIP == "" {
		return nil, nil
	}
	server, err := open()
	if err != nil {
		return nil, err
	}
	conn := &instanceConn{pod: pod.UID, address: pod.Status.PodIP, server: server, failedWatches: rate.NewLimiter(rate.Every(failedWatchInterval), 1)}
	c.instances[i] = conn
	return conn, nil
}

// watch watches the connection to the primary. At most one connection is watched. If conn is nil, the watch stops.
func (c *clusterConns) watch(ctx context.Context, conn *instanceConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn == c.watched || c.closed {
		return
	}
	c.stopWatching()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // The watch may outlive the pass, and ends with the connections.
	c.watched, c.unwatch = conn, cancel
	c.manager.goroutines.Go(func() {
		err := conn.server.WatchConnection(ctx)
		if err == nil {
			return
		}
		c.mu.Lock()
		if c.watched == conn {
			c.stopWatching()
		}
		c.mu.Unlock()
		if errors.Is(err, sqlclient.ErrSilent) {
			c.awaitAnswer(ctx, conn)
		}
		c.requestLook()
	})
}

// stopWatching stops the watch. The caller must hold the lock.
func (c *clusterConns) stopWatching() {
	if c.unwatch != nil {
		c.unwatch()
	}
	c.watched, c.unwatch = nil, nil
}

// watchReplication starts watching a replica, and reports whether the replica is watched. A pass is triggered as soon
// as the replica stops applying, or when the watch has failed and the replica's state is unknown. failedWatches limits
// the passes for a server that refuses every watch. The pass after the end of a watch does not start another one;
// otherwise a watch that always ends immediately would be repeated without a pause.
func (c *clusterConns) watchReplication(ctx context.Context, conn *instanceConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.replicationWatch.isRunning() {
		return true
	}
	if conn.isClosed || c.closed || conn.replicationWatch != nil {
		conn.replicationWatch = nil
		return false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // The watch may outlive the pass, and ends with the connections.
	watch := &replicationWatch{cancel: cancel, ended: make(chan struct{})}
	conn.replicationWatch = watch
	c.manager.goroutines.Go(func() {
		defer cancel()
		err := conn.server.WatchReplication(ctx)
		close(watch.ended)
		isFailure := err != nil && ctx.Err() == nil
		if err == nil || isFailure && conn.failedWatches.AllowN(c.manager.clock.Now(), 1) {
			c.requestLook()
		}
	})
	return true
}

func (w *replicationWatch) isRunning() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// unwatchReplication cancels the watch of an instance and returns it, or nil if none exists. The statement has also
// ended in the server once the channel ended is closed.
func (c *clusterConns) unwatchReplication(conn *instanceConn) *replicationWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	watch := conn.replicationWatch
	conn.replicationWatch = nil
	if watch != nil {
		watch.cancel()
	}
	return watch
}

// recordResult adds the result of an action to the history; failure is empty if it succeeded.
func (c *clusterConns) recordResult(do clustering.Action, at time.Time, failure string) {
	c.history = c.history.WithResult(do, at, failure)
}

// markPodVersionStale records that a version of a Pod is outdated.
func (c *clusterConns) markPodVersionStale(i int, before, after string) {
	if before != after {
		c.stalePodVersions[i] = before
	}
}

// isCacheBehind reports whether the cache still contains a Pod as it was before the last action. Based on such a Pod, a
// pass would conclude that the action had no effect.
func (c *clusterConns) isCacheBehind(pods []*corev1.Pod) bool {
	for i, pod := range pods {
		if pod != nil && c.stalePodVersions[i] == pod.ResourceVersion {
			return true
		}
	}
	return false
}

const (
	// passActionWait is how long a pass waits for an action. A longer action continues, and later passes observe it as
	// pending.
	passActionWait = time.Second
	// actionTimeout limits how long an action may take. After that it is abandoned, and later passes observe its
	// statements that still run in the server as pending.
	actionTimeout = 30 * time.Second
	// cloneTimeout limits how long a clone may take.
	cloneTimeout = 24 * time.Hour
)

// errBusy is returned for an action on an instance while an earlier action still runs there.
var errBusy = errors.New("an earlier action still runs")

// asyncAction is an action that may continue across passes.
type asyncAction struct {
	do        clustering.Action
	startedAt time.Time
	cancel    context.CancelFunc
	done      chan struct{}
	// err is set before done is closed.
	err error
}

func (a *asyncAction) isRunning() bool {
	if a == nil {
		return false
	}
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// startAction starts an action and waits briefly for its completion, except for a clone.
func (c *clusterConns) startAction(ctx context.Context, i int, do clustering.Action, run func(context.Context) error) error {
	wait, timeout := passActionWait, actionTimeout
	if _, isClone := do.(clustering.CloneFrom); isClone {
		wait, timeout = 0, cloneTimeout
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout) // The action may last longer than the pass.
	action := &asyncAction{do: do, startedAt: c.manager.clock.Now(), cancel: cancel, done: make(chan struct{})}
	conn, err := c.launch(longer, i, action, run)
	if err != nil {
		cancel()
		return err
	}
	if !action.awaitDone(ctx, wait) {
		return nil
	}
	c.mu.Lock() // closeAll may run concurrently.
	defer c.mu.Unlock()
	conn.action = nil
	return action.err
}

// launch runs an action in a goroutine. It holds the lock throughout, because no goroutine may be added to the wait
// group once closed is set.
func (c *clusterConns) launch(ctx context.Context, i int, action *asyncAction, run func(context.Context) error) (*instanceConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.instances[i]
	switch {
	case c.closed:
		return nil, errClosed
	case conn == nil:
		return nil, errNoConnection
	case conn.action.isRunning():
		return nil, errBusy
	}
	conn.action = action
	c.manager.goroutines.Go(func() {
		defer action.cancel()
		action.err = run(ctx)
		if _, isClone := action.do.(clustering.CloneFrom); isClone {
			c.manager.onClone(c.name, i, c.manager.clock.Since(action.startedAt), action.err)
		}
		close(action.done)
	})
	return conn, nil
}

// awaitDone waits until the action is done, wait has elapsed or ctx is cancelled. It reports whether the action is
// done.
func (a *asyncAction) awaitDone(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-a.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// interruptAction cancels the action that runs on an instance, and waits briefly for its end.
func (c *clusterConns) interruptAction(ctx context.Context, i int) {
	c.mu.Lock()
	conn := c.instances[i]
	c.mu.Unlock()
	if conn == nil || !conn.action.isRunning() {
		return
	}
	conn.action.cancel()
	conn.action.awaitDone(ctx, passActionWait)
}

// collectResults adds the failures of actions that finished outside of a pass to the history.
func (c *clusterConns) collectResults(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.instances {
		if conn.action == nil || conn.action.isRunning() {
			continue
		}
		if conn.action.err != nil {
			c.recordResult(conn.action.do, now, describeError(conn.action.err))
		}
		conn.action = nil
	}
}
