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

// many measures the real manager with clusters whose servers are simulated.
func (b *bench) many(t *testing.T) {
	binary := os.Getenv("TORPOR_BINARY")
	if binary == "" {
		t.Skip("TORPOR_BINARY is not set: expected the path of the binary torpor; run make bench-mysql")
	}
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	s := &simulated{hanging: map[int]chan struct{}{}}
	all := makeMany(t, hub, s)
	from := time.Now()
	p := testenv.StartProcess(t, binary, []string{"manager", "--kubeconfig", hub.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0"}, nil)
	allHealthy(t, hub, all)
	b.add("manager_200_clusters_all_healthy_seconds", time.Since(from).Seconds())
	allAre(t, hub, all, mocov1beta2.ReconcileSuccessCondition, "True ReconcileSuccess") // Their objects are made once.
	for range idleRounds {
		cpu, statements, began := cpuTime(t, p.PID()), s.statements.Load(), time.Now()
		wait(t, minute)
		share := time.Since(began).Minutes()
		b.add("manager_200_clusters_cpu_ms_per_minute", float64((cpuTime(t, p.PID())-cpu).Milliseconds())/share)
		b.add("manager_200_clusters_rss_mib", rss(t, p.PID()))
		b.add("manager_200_clusters_statements_per_second", float64(s.statements.Load()-statements)/share/60)
	}
	b.stopSome(t, all, "manager_200_stop_seconds")
	end := s.hang(0)
	wait(t, noticed)
	b.stopSome(t, all, "manager_200_one_hangs_seconds")
	end()
	var ends []func()
	for k := range manyHang {
		ends = append(ends, s.hang(k))
	}
	wait(t, noticed)
	b.stopSome(t, all, "manager_200_thirty_hang_seconds")
	for _, end := range ends {
		end()
	}
	allHealthy(t, hub, all)
}

// makeMany makes the clusters with their Pods, which are ready.
func makeMany(t *testing.T, hub *testenv.Environment, s *simulated) []*mysqlpods.Cluster {
	t.Helper()
	namespace := hub.CreateNamespace(t)
	if err := hub.Client.Create(t.Context(), mysqlpods.BuildServiceAccount(namespace)); err != nil {
		t.Fatal(err)
	}
	all := make([]*mysqlpods.Cluster, clusters)
	var work sync.WaitGroup
	failures := make([]error, makers)
	for m := range makers {
		for k := m; k < clusters; k += makers {
			name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("c%d", k)}
			s.serve(t, k, fmt.Sprintf("moco-%s-0.moco-%s.%s.svc", name.Name, name.Name, namespace))
			all[k] = &mysqlpods.Cluster{Env: hub, Name: name}
		}
		work.Go(func() {
			for k := m; k < clusters && failures[m] == nil; k += makers {
				failures[m] = makeOne(t, hub, all[k].Name, k)
			}
		})
	}
	work.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	return all
}

func makeOne(t *testing.T, hub *testenv.Environment, name types.NamespacedName, k int) error {
	t.Helper()
	if err := hub.Client.Create(t.Context(), mysqlpods.BuildSecret(name)); err != nil {
		return err
	}
	for i := range size {
		pod := mysqlpods.BuildPod(name, i)
		if err := hub.Client.Create(t.Context(), pod); err != nil {
			return err
		}
		if err := mysqlpods.ReportPod(t.Context(), hub.Client, pod, simulatedAddress(k, i), true); err != nil {
			return err
		}
	}
	return hub.Client.Create(t.Context(), testenv.BuildMySQLCluster(t, name, size))
}

func allHealthy(t *testing.T, hub *testenv.Environment, all []*mysqlpods.Cluster) {
	t.Helper()
	allAre(t, hub, all, mocov1beta2.HealthyCondition, "True Healthy")
}

func allAre(t *testing.T, hub *testenv.Environment, all []*mysqlpods.Cluster, kind, want string) {
	t.Helper()
	testenv.Eventually(t, kind+" is "+want+" for all clusters", func() error {
		var list mocov1beta2.MySQLClusterList
		if err := hub.Client.List(t.Context(), &list); err != nil {
			return err
		}
		count, last := 0, ""
		for i := range list.Items {
			if err := conditionIs(&list.Items[i], kind, want); err != nil {
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

// stopSome measures stops of clusters that do not hang, from the patch to the condition, one after the other.
func (b *bench) stopSome(t *testing.T, all []*mysqlpods.Cluster, figure string) {
	t.Helper()
	for _, c := range all[len(all)-probes:] {
		from := annotate(t, c, "true")
		soon(t, c, "False ClusteringInactive")
		b.add(figure, time.Since(from).Seconds())
		annotate(t, c, "")
		soon(t, c, "True ClusteringActive")
	}
}

// soon waits for ClusteringActive with a pace that is small beside what is measured.
func soon(t *testing.T, c *mysqlpods.Cluster, want string) {
	t.Helper()
	for began := time.Now(); ; wait(t, retryPace) {
		err := is(t.Context(), c, mocov1beta2.ClusteringActiveCondition, want)
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

// rss is a process's resident memory in MiB.
func rss(t *testing.T, pid int) float64 {
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
