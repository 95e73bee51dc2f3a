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
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

const (
	clusters = 200
	// makers is how many clusters are made at a time.
	makers = 8
	// rounds of a minute in which the manager does nothing but look.
	idleRounds = 2
	minute     = time.Minute
	// manyHang is more than the controller has workers.
	manyHang = 30
	// noticed is by when the manager has tried to look at clusters that hang.
	noticed = 15 * time.Second
	// probes is how many clusters are stopped and started while others hang.
	probes = 40
)

// benchManyClusters measures the real manager with clusters whose servers are simulated.
func (b *benchmark) benchManyClusters(t *testing.T) {
	binary := os.Getenv("TORPOR_BINARY")
	if binary == "" {
		t.Skip("TORPOR_BINARY is not set: expected the path of the binary torpor; run make bench-mysql")
	}
	env := testenv.Start(t)
	s := &simulatedServers{hanging: map[int]chan struct{}{}}
	all := createClusters(t, env, s)
	from := time.Now()
	p := testenv.StartProcess(t, binary, []string{"manager", "--kubeconfig", env.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0"}, nil)
	waitUntilAllHealthy(t, env, all)
	b.addRun("manager_200_clusters_all_healthy_seconds", time.Since(from).Seconds())
	waitUntilAll(t, env, all, mocov1beta2.ReconcileSuccessCondition, "True ReconcileSuccess") // Their objects are made once.
	for range idleRounds {
		cpu, statements, began := cpuTime(t, p.PID()), s.statements.Load(), time.Now()
		sleep(t, minute)
		share := time.Since(began).Minutes()
		b.addRun("manager_200_clusters_cpu_ms_per_minute", float64((cpuTime(t, p.PID())-cpu).Milliseconds())/share)
		b.addRun("manager_200_clusters_rss_mib", residentMiB(t, p.PID()))
		b.addRun("manager_200_clusters_statements_per_second", float64(s.statements.Load()-statements)/share/60)
	}
	b.benchStops(t, all, "manager_200_stop_seconds")
	end := s.hangCluster(0)
	sleep(t, noticed)
	b.benchStops(t, all, "manager_200_one_hangs_seconds")
	end()
	var ends []func()
	for k := range manyHang {
		ends = append(ends, s.hangCluster(k))
	}
	sleep(t, noticed)
	b.benchStops(t, all, "manager_200_thirty_hang_seconds")
	for _, end := range ends {
		end()
	}
	waitUntilAllHealthy(t, env, all)
}

// createClusters makes the clusters with their Pods, which are ready.
func createClusters(t *testing.T, env *testenv.Environment, s *simulatedServers) []*mysqlpods.PodCluster {
	t.Helper()
	namespace := env.CreateNamespace(t)
	if err := env.Client.Create(t.Context(), mysqlpods.BuildServiceAccount(namespace)); err != nil {
		t.Fatal(err)
	}
	all := make([]*mysqlpods.PodCluster, clusters)
	var work sync.WaitGroup
	failures := make([]error, makers)
	for m := range makers {
		for k := m; k < clusters; k += makers {
			name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("c%d", k)}
			s.startServers(t, k, fmt.Sprintf("moco-%s-0.moco-%s.%s.svc", name.Name, name.Name, namespace))
			all[k] = &mysqlpods.PodCluster{Env: env, Name: name}
		}
		work.Go(func() {
			for k := m; k < clusters && failures[m] == nil; k += makers {
				failures[m] = createCluster(t, env, all[k].Name, k)
			}
		})
	}
	work.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	return all
}

func createCluster(t *testing.T, env *testenv.Environment, name types.NamespacedName, k int) error {
	t.Helper()
	if err := env.Client.Create(t.Context(), mysqlpods.BuildPasswordSecret(name)); err != nil {
		return err
	}
	for i := range size {
		pod := mysqlpods.BuildPod(name, i)
		if err := env.Client.Create(t.Context(), pod); err != nil {
			return err
		}
		if err := mysqlpods.ReportPod(t.Context(), env.Client, pod, simulatedAddress(k, i), true); err != nil {
			return err
		}
	}
	return env.Client.Create(t.Context(), testenv.BuildMySQLCluster(t, name, size))
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
		if count < len(all) {
			return fmt.Errorf("found %d, and another: %s", count, last)
		}
		return nil
	})
}

// benchStops measures stops of clusters that do not hang, from the patch to the condition, one after the other.
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

// pollCondition waits for ClusteringActive with a pace that is small beside what is measured.
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

// cpuTime is what a process has used of processors.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all of Linux's architectures that matter here.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * tick
}

// residentMiB returns a process's resident memory in MiB.
func residentMiB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1024
}
