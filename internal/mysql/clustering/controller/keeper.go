// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
)

// lostBuffer is how many lost connections may wait to be looked at.
const lostBuffer = 1024

// errClosed is told to who comes after the end.
var errClosed = errors.New("the controller has ended")

// keeper holds, from pass to pass, the connections to every cluster's servers and what clustering remembers. Losing it
// costs new connections and clocks that start anew.
type keeper struct {
	clock clock.PassiveClock
	// lost tells of clusters whose primary's connection is lost.
	lost chan event.GenericEvent

	mu     sync.Mutex
	closed bool
	crews  map[types.NamespacedName]*crew
	// busy are the goroutines of all crews.
	busy sync.WaitGroup
}

func newKeeper(c clock.PassiveClock) *keeper {
	return &keeper{clock: c, lost: make(chan event.GenericEvent, lostBuffer), crews: map[types.NamespacedName]*crew{}}
}

// run returns when ctx has ended and every connection is closed.
func (k *keeper) run(ctx context.Context) error {
	<-ctx.Done()
	k.mu.Lock()
	k.closed = true
	for _, c := range k.crews {
		c.close()
	}
	clear(k.crews)
	k.mu.Unlock()
	k.busy.Wait()
	return nil
}

// crew returns what is kept of a cluster. One of another UID under the same name is another cluster.
func (k *keeper) crew(cluster *mocov1beta2.MySQLCluster) *crew {
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.crews[name]
	if c != nil && c.uid == cluster.UID {
		return c
	}
	if c != nil {
		c.close()
	}
	c = &crew{keeper: k, name: name, uid: cluster.UID, members: map[int]*member{}, outdated: map[int]string{}, closed: k.closed}
	if p := cluster.Status.Pause; p != nil && p.Clustering != nil {
		c.memory.StopAskedSince = p.Clustering.Since.Time
	}
	if !k.closed {
		k.crews[name] = c
	}
	return c
}

func (k *keeper) forget(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.crews[name]; c != nil {
		c.close()
		delete(k.crews, name)
	}
}

// crew is one cluster's part. Its passes come one after another; only its end may come at any time.
type crew struct {
	keeper *keeper
	name   types.NamespacedName
	uid    types.UID
	memory clustering.History
	// outdated are the versions of Pods that were replaced by what this manager wrote, by index.
	outdated map[int]string

	mu      sync.Mutex
	closed  bool
	members map[int]*member
	watched *member
	unwatch context.CancelFunc
}

// member is the connection to one server.
type member struct {
	pod     types.UID
	address string
	server  *sqlclient.Server
	work    *work
}

func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.stopWatching()
	for i := range c.members {
		c.drop(i)
	}
}

// drop closes the connections to an instance. It is called with the lock held.
func (c *crew) drop(i int) {
	m := c.members[i]
	if m == nil {
		return
	}
	if c.watched == m {
		c.stopWatching()
	}
	if m.work != nil {
		m.work.cancel()
	}
	_ = m.server.Close() // Whatever it was, it is over.
	delete(c.members, i)
}

// forget drops the connections to an instance, whose password may have changed.
func (c *crew) forget(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(i)
}

// member returns the connection to the server of a Pod. password is asked only for a new one.
func (c *crew) member(i int, pod *corev1.Pod, password func() (string, error)) (*member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if m := c.members[i]; m != nil && pod != nil && m.pod == pod.UID && m.address == pod.Status.PodIP {
		return m, nil
	}
	c.drop(i)
	if pod == nil || pod.Status.PodIP == "" {
		return nil, nil
	}
	secret, err := password()
	if err != nil {
		return nil, err
	}
	server, err := sqlclient.OpenServer(pod.Status.PodIP, sqlclient.Account{Name: adminUser, Password: secret})
	if err != nil {
		return nil, fmt.Errorf("open instance %d: %w", i, err)
	}
	m := &member{pod: pod.UID, address: pod.Status.PodIP, server: server}
	c.members[i] = m
	return m, nil
}

// watch looks after the connection to the primary, and after nobody else's. None ends it.
func (c *crew) watch(ctx context.Context, m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m == c.watched || c.closed {
		return
	}
	c.stopWatching()
	if m == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // It outlives the pass and ends with the crew.
	c.watched, c.unwatch = m, cancel
	c.keeper.busy.Go(func() {
		if err := m.server.WatchConnection(ctx); err == nil {
			return
		}
		c.mu.Lock()
		if c.watched == m {
			c.stopWatching()
		}
		c.mu.Unlock()
		select {
		case c.keeper.lost <- event.GenericEvent{Object: &mocov1beta2.MySQLCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.name.Namespace, Name: c.name.Name},
		}}:
		default: // So many others are lost that the regular look comes first.
		}
	})
}

// stopWatching is called with the lock held.
func (c *crew) stopWatching() {
	if c.unwatch != nil {
		c.unwatch()
	}
	c.watched, c.unwatch = nil, nil
}

// note remembers what became of an act; trouble is empty if it succeeded.
func (c *crew) note(do clustering.Action, at time.Time, trouble string) {
	c.memory = c.memory.WithResult(do, at, trouble)
}

// replaced remembers that a version of a Pod is outdated.
func (c *crew) replaced(i int, before, after string) {
	if before != after {
		c.outdated[i] = before
	}
}

// behind: the cache still holds a Pod as it was before the last act, which would look as if it had not helped.
func (c *crew) behind(pods []*corev1.Pod) bool {
	for i, pod := range pods {
		if pod != nil && c.outdated[i] == pod.ResourceVersion {
			return true
		}
	}
	return false
}
