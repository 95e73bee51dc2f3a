// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

const (
	instances   = 3
	clusterName = "test"
)

// environment is an API server, a MySQLCluster, and Pods that are real servers.
type environment struct {
	*testenv.Environment
	name    types.NamespacedName
	servers []*mysqld.Server
	metrics *Metrics
	log     *testenv.LogBuffer
	clock   shiftedClock
}

// shiftedClock is a clock that is ahead of the real one.
type shiftedClock struct{ ahead time.Duration }

// Now implements clock.PassiveClock.
func (s shiftedClock) Now() time.Time { return clock.RealClock{}.Now().Add(s.ahead) }

// Since implements clock.PassiveClock.
func (s shiftedClock) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// newEnvironment starts an API server with a namespace, without any MySQL server.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{Environment: testenv.Start(t), log: &testenv.LogBuffer{}}
	e.name = types.NamespacedName{Namespace: e.CreateNamespace(t), Name: clusterName}
	e.log.ShowOnFailure(t, "the manager")
	e.log.ExpectWithout(t, "secret-")
	return e
}

// newEnvironmentWithServers starts an instance for each Pod too, and makes the Pods and their Secret.
func newEnvironmentWithServers(t *testing.T) *environment {
	t.Helper()
	e := newEnvironment(t)
	cluster := mysqlpods.StartCluster(t, e.Environment, instances, false)
	e.name, e.servers = cluster.Name, cluster.Servers
	return e
}

// newHealthyEnvironment lets the manager make a healthy cluster of three empty servers, with a table.
func newHealthyEnvironment(t *testing.T) *environment {
	t.Helper()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, nil)
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.mustRun(t, 0, "app", "create database app", "create table app.t (id int auto_increment primary key, v varchar(20))", "insert into app.t (v) values ('first')")
	return e
}

func (e *environment) createCluster(t *testing.T, annotations map[string]string) {
	t.Helper()
	cluster := testenv.BuildMySQLCluster(t, e.name, instances)
	cluster.Annotations = annotations
	e.ExpectCreated(t, cluster)
}

// startManager runs a manager with the controller for the rest of the test, or until stop.
func (e *environment) startManager(t *testing.T) (stop func()) {
	t.Helper()
	e.metrics = NewMetrics()
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string {
		if i >= len(e.servers) {
			return "nowhere"
		}
		return e.servers[i].Address
	}
	controller := Controller{HostOf: host, Clock: e.clock, Metrics: e.metrics}
	return testenv.StartManager(t, e.Environment, controller.SetupWithManager, func(o *manager.Options) { o.Logger = e.log.Logger(1) })
}

func (e *environment) getCluster(t *testing.T) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := e.Client.Get(t.Context(), e.name, cluster); err != nil {
		t.Fatalf("get the cluster: %v", err)
	}
	return cluster
}

// waitForCondition waits until a condition has a status and a reason, as in "True Healthy".
func (e *environment) waitForCondition(t *testing.T, kind, want string) *mocov1beta2.MySQLCluster {
	t.Helper()
	var cluster *mocov1beta2.MySQLCluster
	testenv.Eventually(t, kind+" becomes "+want, func() error {
		cluster = e.getCluster(t)
		c := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if c == nil {
			return errors.New("there is no such condition")
		}
		if found := string(c.Status) + " " + c.Reason; found != want {
			return fmt.Errorf("found %s: %s", found, c.Message)
		}
		return nil
	})
	return cluster
}

// annotate sets annotations; an empty value takes one away.
func (e *environment) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	for name, value := range annotations {
		if value == "" {
			delete(cluster.Annotations, name)
			continue
		}
		cluster.Annotations[name] = value
	}
	if err := e.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatalf("annotate: %v", err)
	}
}

func (e *environment) stopClustering(t *testing.T) {
	t.Helper()
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
}

func (e *environment) startClustering(t *testing.T) {
	t.Helper()
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: ""})
}

// getSecret is the Secret with the cluster's passwords.
func (e *environment) getSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := e.Client.Get(t.Context(), types.NamespacedName{Namespace: e.name.Namespace, Name: "moco-" + clusterName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}
