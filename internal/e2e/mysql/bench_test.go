// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

const (
	stopRuns, switchoverRuns, failoverRuns = 40, 10, 20
	// silence is how long nothing may come for a manager to be quiet. Its looks at a stopped cluster are further apart.
	silence = 1500 * time.Millisecond
	idle    = 90 * time.Second
	// retryPace is how soon a client tries again.
	retryPace = 5 * time.Millisecond
)

// bench collects figures by name, each from one or more runs.
type bench struct{ runs map[string][]float64 }

func (b *bench) add(name string, value float64) { b.runs[name] = append(b.runs[name], value) }

// targets are the figures that issue or upstream give something to compare with.
func targets() map[string]string {
	return map[string]string{
		"stop_condition_p50_seconds":        "upstream 0.028",
		"stop_condition_p95_seconds":        "upstream 0.081",
		"stop_quiet_p50_seconds":            "upstream does not wait for it",
		"start_active_p50_seconds":          "upstream 0.144",
		"failover_p95_seconds":              "target <= 5, upstream 34",
		"idle_statements_per_second":        "target <= 0.35",
		"acts_after_stop":                   "target 0",
		"manager_200_one_hangs_p95_seconds": "as without it",
	}
}

// figures are the medians, or what the name asks for.
func (b *bench) figures() map[string]float64 {
	found := map[string]float64{}
	for name, runs := range b.runs {
		sorted := slices.Sorted(slices.Values(runs))
		at := func(share float64) float64 { return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))] }
		if base, ok := strings.CutSuffix(name, "_seconds"); ok && len(sorted) > 1 {
			found[base+"_p50_seconds"], found[base+"_p95_seconds"] = at(0.5), at(0.95)
			continue
		}
		found[name] = at(0.5)
	}
	return found
}

// TestBench measures one cluster of real servers, and then a manager with 200 simulated ones.
func TestBench(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: this takes a quarter of an hour; run make bench-mysql")
	}
	b := &bench{runs: map[string][]float64{}}
	before := load(t)
	t.Run("one cluster", b.one)
	t.Run("200 clusters", b.many)
	if t.Failed() {
		return
	}
	found := b.figures()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%-50s %10.3f   %s", name, found[name], targets()[name])
	}
	t.Logf("load average before %s, after %s", before, load(t))
	writeJSON(t, "mysql.json", found)
}

func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))[0]
}

func (b *bench) one(t *testing.T) {
	c, manager := healthy(t, false)
	seen := watchCluster(t, c)
	log := startLog(t, c)
	manager.Kill9(t) // Its successor's connections are in the log.
	startManager(t, c)
	testenv.Eventually(t, "the manager has looked at all servers", func() error {
		if log.read(t); len(log.said) < 3*size {
			return fmt.Errorf("found %v", log.said)
		}
		return nil
	})
	becomesHealthy(t, c)
	b.idle(t, log)
	for range stopRuns {
		b.stop(t, c, log, seen)
	}
	for range switchoverRuns {
		b.stopSwitchover(t, c, log, seen)
	}
	becomesHealthy(t, c) // Before, sessions of clients are ended.
	for i := range c.Servers {
		must(t, c, i, "set global general_log = off")
	}
	for n := range failoverRuns {
		b.failover(t, c, n)
	}
}

// idle measures what a healthy cluster costs that nobody uses.
func (b *bench) idle(t *testing.T, log *generalLog) {
	t.Helper()
	from := time.Now()
	wait(t, idle)
	log.read(t)
	all, acts := log.since(from)
	if acts > 0 {
		t.Errorf("expected a healthy cluster to be looked at only, found %d acts in %v", acts, log.said)
	}
	b.add("idle_statements_per_second", float64(all)/time.Since(from).Seconds())
}

// stop measures a stop of a healthy cluster, and the start after it.
func (b *bench) stop(t *testing.T, c *mysqlpods.Cluster, log *generalLog, seen <-chan sighting) {
	t.Helper()
	from := annotate(t, c, "true")
	condition := await(t, seen, "False ClusteringInactive")
	b.add("stop_condition_seconds", condition.Sub(from).Seconds())
	b.add("stop_quiet_seconds", quiet(t, log, condition).Sub(from).Seconds())
	_, acts := log.since(condition)
	b.add("acts_after_stop", float64(acts))
	if acts > 0 {
		t.Errorf("expected nothing to be done after the stop, found %d acts", acts)
	}
	from = annotate(t, c, "")
	b.add("start_active_seconds", await(t, seen, "True ClusteringActive").Sub(from).Seconds())
	becomesHealthy(t, c)
}

// stopSwitchover measures a stop that comes in the middle of a switchover.
func (b *bench) stopSwitchover(t *testing.T, c *mysqlpods.Cluster, log *generalLog, seen <-chan sighting) {
	t.Helper()
	old := primary(t, c)
	pod := mysqlpods.BuildPod(c.Name, old)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+mocov1beta2.DemoteAnnotation+`":"true"}}}`))
	if err := c.Env.Client.Patch(t.Context(), pod, patch); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; { // No pause: the primary is read-only for a few milliseconds only.
		if is, err := ask(t, c, old, "select @@super_read_only"); err == nil && is == "1" {
			break
		}
		if time.Since(began) > sqlTimeout {
			t.Fatal("the switchover does not begin")
		}
	}
	from := annotate(t, c, "true")
	condition := await(t, seen, "False ClusteringInactive")
	b.add("stop_switchover_condition_seconds", condition.Sub(from).Seconds())
	b.add("stop_switchover_quiet_seconds", quiet(t, log, condition).Sub(from).Seconds())
	if readOnly, err := ask(t, c, primary(t, c), "select @@super_read_only"); err != nil || readOnly != "0" {
		t.Errorf("expected a writable primary after the stop, found super_read_only %q (%v)", readOnly, err)
	}
	annotate(t, c, "")
	await(t, seen, "True ClusteringActive")
	testenv.Eventually(t, "the switchover is done", func() error {
		if now := primary(t, c); now == old {
			return errors.New("the primary is the old one")
		}
		return is(t.Context(), c, mocov1beta2.HealthyCondition, "True Healthy")
	})
}

// failover measures from the kill of the primary to the first acknowledgement to a client that tries again and again.
func (b *bench) failover(t *testing.T, c *mysqlpods.Cluster, n int) {
	t.Helper()
	old := primary(t, c)
	if err := insert(t, c, int64(2*n)); err != nil {
		t.Fatalf("a healthy cluster takes no row: %v", err)
	}
	from := time.Now()
	c.Servers[old].Kill9(t)
	testenv.Eventually(t, "a row is acknowledged", func() error {
		err := errors.New("not tried")
		for began := time.Now(); time.Since(began) < time.Second && err != nil; wait(t, retryPace) {
			err = insert(t, c, int64(2*n+1))
		}
		return err
	})
	b.add("failover_seconds", time.Since(from).Seconds())
	c.Servers[old].Start(t)
	becomesHealthy(t, c)
}

// insert is a client that finds the primary by its label and writes one row.
func insert(t *testing.T, c *mysqlpods.Cluster, id int64) error {
	t.Helper()
	i, err := c.FindPrimaryPod(t.Context())
	if err != nil || i < 0 {
		return fmt.Errorf("no Pod has the label of the primary (%w)", err)
	}
	one := &writer{number: int(id), node: remote, cluster: c}
	one.connect(t, i)
	defer one.leave()
	return one.write(t.Context(), id)
}

// quiet waits until the manager has sent nothing for a while, and returns when it was last heard; not before a moment.
func quiet(t *testing.T, log *generalLog, notBefore time.Time) time.Time {
	t.Helper()
	var last time.Time
	testenv.Eventually(t, "the manager is quiet", func() error {
		log.read(t)
		if last = log.last(); last.Before(notBefore) {
			last = notBefore
		}
		if now := time.Since(last); now < silence {
			return fmt.Errorf("heard %s ago", now)
		}
		return nil
	})
	return last
}

// annotate stops or starts clustering and returns when it began to.
func annotate(t *testing.T, c *mysqlpods.Cluster, value string) time.Time {
	t.Helper()
	from := time.Now()
	if err := c.Annotate(t.Context(), mocov1beta2.ClusteringStoppedAnnotation, value); err != nil {
		t.Fatal(err)
	}
	return from
}

// sighting is a change of ClusteringActive as a watching client sees it.
type sighting struct {
	at time.Time
	is string
}

func watchCluster(t *testing.T, c *mysqlpods.Cluster) <-chan sighting {
	t.Helper()
	known := runtime.NewScheme()
	if err := mocov1beta2.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	watching, err := client.NewWithWatch(c.Env.Config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := watching.Watch(ctx, &mocov1beta2.MySQLClusterList{}, client.InNamespace(c.Name.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	seen := make(chan sighting, 10000)
	go func() {
		defer close(seen)
		for event := range w.ResultChan() {
			cluster, ok := event.Object.(*mocov1beta2.MySQLCluster)
			if !ok {
				continue
			}
			if active := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.ClusteringActiveCondition); active != nil {
				seen <- sighting{at: time.Now(), is: string(active.Status) + " " + active.Reason}
			}
		}
	}()
	return seen
}

// await returns when a state was first seen that comes after what was seen before.
func await(t *testing.T, seen <-chan sighting, want string) time.Time {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		select {
		case s, ok := <-seen:
			if !ok {
				t.Fatal("the watch has ended")
			}
			if s.is == want {
				return s.at
			}
		case <-deadline.C:
			t.Fatalf("%s was not seen within a minute", want)
		}
	}
}

func wait(t *testing.T, long time.Duration) {
	t.Helper()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
