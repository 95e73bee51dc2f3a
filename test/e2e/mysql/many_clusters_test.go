// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	clusters = 200
	// makers is the number of clusters that are created concurrently.
	makers = 8
	// idleRounds is the number of minutes in which the manager only polls.
	idleRounds = 2
	minute     = time.Minute
	// manyHang is the number of clusters that hang; it exceeds the number of the controller's workers.
	manyHang = 30
	// noticed is the time after which the manager has tried to query all clusters that hang.
	noticed = 15 * time.Second
	// probes is the number of clusters that are stopped and started while others hang.
	probes = 40
)

// benchManyClusters measures the real manager with clusters whose servers are simulated.
func (b *benchmark) benchManyClusters(t *testing.T) {
	binary := testenv.TorporPath(t)
	env := testenv.Start(t)
	s := mysqlpods.NewSimulatedServers()
	all := createClusters(t, env, s, clusters)
	from := time.Now()
	p := testenv.StartProcess(t, binary, []string{"manager", "--kubeconfig", env.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0"}, nil)
	waitUntilAllHealthy(t, env, all)
	b.addRun("manager_200_clusters_all_healthy_seconds", time.Since(from).Seconds())
	waitUntilAll(t, env, all, mocov1beta2.ReconcileSuccessCondition, "True ReconcileSuccess") // Their objects are created only once.
	for range idleRounds {
		cpu, statements, began := testenv.ReadProcessorTime(t, p.PID()), s.Statements.Load(), time.Now()
		sleep(t, minute)
		share := time.Since(began).Minutes()
		b.addRun("manager_200_clusters_cpu_ms_per_minute", float64((testenv.ReadProcessorTime(t, p.PID())-cpu).Milliseconds())/share)
		b.addRun("manager_200_clusters_rss_mib", residentMiB(t, p.PID()))
		b.addRun("manager_200_clusters_statements_per_second", float64(s.Statements.Load()-statements)/share/60)
	}
	s.BusySince.Store(new(time.Now()))
	b.addRun("status_writes_per_minute_200_busy", countStatusWrites(t, env))
	s.BusySince.Store(nil)
	b.benchStops(t, all, "manager_200_stop_seconds")
	end := s.HangCluster(0)
	sleep(t, noticed)
	b.benchStops(t, all, "manager_200_one_hangs_seconds")
	end()
	var ends []func()
	for k := range manyHang {
		ends = append(ends, s.HangCluster(k))
	}
	sleep(t, noticed)
	b.benchStops(t, all, "manager_200_thirty_hang_seconds")
	for _, end := range ends {
		end()
	}
	waitUntilAllHealthy(t, env, all)
}

// TestSimulatedServersAreHealthy verifies the simulation of the benchmark with one cluster, in case the controller's
// query changes.
func TestSimulatedServersAreHealthy(t *testing.T) {
	binary := testenv.TorporPath(t)
	env := testenv.Start(t)
	s := mysqlpods.NewSimulatedServers()
	all := createClusters(t, env, s, 1)
	testenv.StartProcess(t, binary, []string{"manager", "--kubeconfig", env.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0"}, nil)
	waitUntilAllHealthy(t, env, all)
}

// countStatusWrites counts the writes to the MySQLClusters in a minute after the servers have become busy.
func countStatusWrites(t *testing.T, env *testenv.Environment) float64 {
	t.Helper()
	versions, writes := map[string]string{}, 0
	for began := time.Now(); time.Since(began) < 2*minute; sleep(t, time.Second) {
		var list mocov1beta2.MySQLClusterList
		testenv.ExpectNoError(t, env.Client.List(t.Context(), &list))
		for i := range list.Items {
			c := &list.Items[i]
			if versions[c.Name] != c.ResourceVersion && time.Since(began) > minute {
				writes++
			}
			versions[c.Name] = c.ResourceVersion
		}
	}
	return float64(writes)
}

func createClusters(t *testing.T, env *testenv.Environment, s *mysqlpods.SimulatedServers, count int) []*mysqlpods.PodCluster {
	t.Helper()
	namespace := env.CreateNamespace(t)
	testenv.ExpectNoError(t, env.Client.Create(t.Context(), mysqlpods.BuildServiceAccount(namespace)))
	all := make([]*mysqlpods.PodCluster, count)
	var work sync.WaitGroup
	failures := make([]error, makers)
	for m := range makers {
		for k := m; k < count; k += makers {
			name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("c%d", k)}
			s.StartServers(t, k, fmt.Sprintf("moco-%s-0.moco-%s.%s.svc", name.Name, name.Name, namespace))
			all[k] = &mysqlpods.PodCluster{Env: env, Name: name}
		}
		work.Go(func() {
			for k := m; k < count && failures[m] == nil; k += makers {
				failures[m] = mysqlpods.CreateSimulatedCluster(t, env, all[k].Name, k)
			}
		})
	}
	work.Wait()
	testenv.ExpectNoError(t, errors.Join(failures...))
	return all
}

func waitUntilAllHealthy(t *testing.T, env *testenv.Environment, all []*mysqlpods.PodCluster) {
	t.Helper()
	waitUntilAll(t, env, all, mocov1beta2.HealthyCondition, "True Healthy")
}

func waitUntilAll(t *testing.T, env *testenv.Environment, all []*mysqlpods.PodCluster, kind, want string) {
	t.Helper()
	testenv.Eventually(t, kind+" is "+want+" for all clusters", func() error {
		var list mocov1beta2.MySQLClusterList
		if err := env.Client.List(t.Context(), &list); err != nil {
			return err
		}
		count, last := 0, ""
		for i := range list.Items {
			if err := checkConditionOf(&list.Items[i], kind, want); err != nil {
				last = err.Error()
				continue
			}
			count++
		}
		return testenv.ErrorIf(count < len(all), "found %d, and another: %s", count, last)
	})
}

// benchStops measures stops of clusters that do not hang, from the patch to the condition, one at a time.
func (b *benchmark) benchStops(t *testing.T, all []*mysqlpods.PodCluster, figure string) {
	t.Helper()
	for _, c := range all[len(all)-probes:] {
		from := annotateStop(t, c, "true")
		pollCondition(t, c, "False ClusteringInactive")
		b.addRun(figure, time.Since(from).Seconds())
		annotateStop(t, c, "")
		pollCondition(t, c, "True ClusteringActive")
	}
}

// pollCondition waits for ClusteringActive, with a poll interval that is much shorter than the measured times.
func pollCondition(t *testing.T, c *mysqlpods.PodCluster, want string) {
	t.Helper()
	for began := time.Now(); ; sleep(t, retryPace) {
		err := checkCondition(t.Context(), c, mocov1beta2.ClusteringActiveCondition, want)
		if err == nil {
			return
		}
		if time.Since(began) > minute {
			t.Fatalf("%s: not %s within a minute: %v", c.Name, want, err)
		}
	}
}

func residentMiB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	testenv.ExpectNoError(t, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	testenv.ExpectNoError(t, err)
	return float64(kib) / 1024
}
