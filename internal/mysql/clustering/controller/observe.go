// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
)

const (
	// readTimeout bounds one look at one server.
	readTimeout = 2 * time.Second
	// silentTimeout is for one that did not answer before: a failover is many passes, and each would wait for it. Every
	// patientLook-th look has readTimeout again, so that a slow server is heard.
	silentTimeout = 300 * time.Millisecond
	patientLook   = 5
)

// The accounts of every cluster, and the keys of their passwords in its Secret.
const (
	adminUser, adminKey             = "moco-admin", "ADMIN_PASSWORD"
	replicationUser, replicationKey = "moco-repl", "REPLICATION_PASSWORD"
	donorUser, donorKey             = "moco-clone-donor", "CLONE_DONOR_PASSWORD"
)

// errNoConnection: the instance has no Pod with an address, or its password is not known.
var errNoConnection = errors.New("there is no connection to the instance")

// observation is what was observed, with the handles that acting needs.
type observation struct {
	clustering.Observed
	cluster *mocov1beta2.MySQLCluster
	crew    *crew
	pods    []*corev1.Pod
	members []*member
	facts   []sqlclient.ServerFacts
	// began is when this pass began to look.
	began time.Time
	// secret reads the cluster's passwords, once in a pass.
	secret func() (map[string][]byte, error)
	// trouble is why there is no password for new connections; empty if there is one, or none was needed.
	trouble string
}

// observe reads everything that the decision may look at: the replicas, then the primary. What cannot be read is left
// out, so that a stop is honoured whatever else fails. It returns nil while the cache is behind.
func (c Controller) observe(ctx context.Context, cluster *mocov1beta2.MySQLCluster) *observation {
	n := int(cluster.Spec.Replicas)
	seen := &observation{
		Observed: wanted(cluster), cluster: cluster, crew: c.keeper.crew(cluster), began: c.Clock.Now(),
		pods: make([]*corev1.Pod, n), members: make([]*member, n), facts: make([]sqlclient.ServerFacts, n),
	}
	seen.secret = sync.OnceValues(func() (map[string][]byte, error) { return c.secret(ctx, cluster) })
	seen.crew.collect(c.Clock.Now())
	c.observePods(ctx, seen)
	if seen.crew.behind(seen.pods) {
		return nil
	}
	seen.connect()
	var replicas sync.WaitGroup
	for i := range n {
		if i != seen.Primary {
			replicas.Go(func() { seen.look(ctx, i, c.Clock.Now()) })
		}
	}
	replicas.Wait()
	if seen.Primary != clustering.NoInstance && seen.Primary < n {
		seen.look(ctx, seen.Primary, c.Clock.Now())
	}
	seen.Now = c.Clock.Now()
	seen.History = clustering.UpdateHistory(seen.crew.memory, seen.Observed)
	seen.crew.memory = seen.History
	seen.watch(ctx)
	return seen
}

func (c Controller) observePods(ctx context.Context, seen *observation) {
	var list corev1.PodList
	err := c.pods.List(ctx, &list, client.InNamespace(seen.cluster.Namespace), client.MatchingLabels{mocov1beta2.InstanceLabel: seen.cluster.Name})
	if err != nil {
		log.FromContext(ctx).Error(err, "Pods cannot be listed")
	}
	alone, _ := stoppedInstances(seen.cluster)
	for i := range seen.pods {
		name := seen.cluster.PodName(i)
		if at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Name == name }); at >= 0 {
			seen.pods[i] = &list.Items[at]
		}
		seen.Instances[i] = clustering.Instance{
			Host: c.HostOf(seen.cluster, i, seen.pods[i]), Pod: podFacts(seen.pods[i]),
			Stopped: slices.Contains(alone, i), KnownErrant: slices.Contains(seen.cluster.Status.ErrantReplicaList, i),
		}
	}
}

// connect finds the connections to the instances, and opens the ones that are missing.
func (s *observation) connect() {
	for i, pod := range s.pods {
		m, err := s.crew.member(i, pod, func() (string, error) { return s.password(adminKey) })
		if err != nil {
			s.trouble = err.Error()
		}
		s.members[i] = m
	}
}

// look reads one server.
func (s *observation) look(ctx context.Context, i int, now time.Time) {
	m := s.members[i]
	if m == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.crew.patience(i))
	defer cancel()
	facts, err := m.server.ReadFacts(ctx)
	if err == nil {
		err = servedFacts(&s.Instances[i], facts)
	}
	if err != nil {
		log.FromContext(ctx).V(1).Info("Instance not read", keyInstance, i, keyError, describe(err))
		s.Instances[i].Refused = sqlclient.IsConnectionRefused(err)
		if sqlclient.IsAccessDenied(err) {
			s.crew.forget(i)
		}
		return
	}
	s.facts[i] = facts
	if w := m.work; w.running() {
		busy(&s.Instances[i], w, now)
	}
}

// patience is how long to wait for an answer of an instance.
func (c *crew) patience(i int) time.Duration {
	if past := c.memory.Instances; i < len(past) && past[i].Misses > 1 && past[i].Misses%patientLook != 0 {
		return silentTimeout
	}
	return readTimeout
}

// watch looks after the primary while clustering is active.
func (s *observation) watch(ctx context.Context) {
	if s.Primary == clustering.NoInstance || s.Primary >= len(s.members) || !s.Instances[s.Primary].Reachable || s.Stop != nil {
		s.crew.watch(ctx, nil)
		return
	}
	s.crew.watch(ctx, s.members[s.Primary])
}

func (s *observation) password(key string) (string, error) {
	data, err := s.secret()
	if err != nil {
		return "", err
	}
	if len(data[key]) == 0 {
		return "", fmt.Errorf("the Secret %s: expected a password under %s, found none; add it", s.cluster.ChildName(), key)
	}
	return string(data[key]), nil
}

func (c Controller) secret(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var s corev1.Secret
	err := c.live.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.ChildName()}, &s)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("the Secret %s cannot be read: %w", cluster.ChildName(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("expected the Secret %s with the passwords, found none; restore it", cluster.ChildName())
	}
	return s.Data, nil
}
