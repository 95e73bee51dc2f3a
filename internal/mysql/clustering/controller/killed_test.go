// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// fewPoints is at how many points a manager is killed unless TORPOR_E2E=full asks for all of them.
const fewPoints = 4

// operation is something that the manager does in several acts.
type operation struct {
	name string
	// begin makes it necessary, with no manager running, and returns what has to hold at the end beside that all is well.
	begin func(*testing.T, *world) func() error
	// mend brings back what begin took away, once somebody else is the primary.
	mend func(*testing.T, *world)
}

// TestKilledDuringSwitchover kills the manager with kill -9 before and after each act of a switchover.
func TestKilledDuringSwitchover(t *testing.T) {
	t.Parallel()
	testKilled(t, operation{name: "switchover", begin: func(t *testing.T, w *world) func() error {
		p := w.cluster(t).Status.CurrentPrimaryIndex
		w.demote(t, p)
		return w.anotherThan(t, p)
	}})
}

// TestKilledDuringFailover does so with a failover, and the way back of who failed.
func TestKilledDuringFailover(t *testing.T) {
	t.Parallel()
	failed := 0
	testKilled(t, operation{name: "failover", begin: func(t *testing.T, w *world) func() error {
		failed = w.cluster(t).Status.CurrentPrimaryIndex
		w.servers[failed].Kill9(t)
		return w.anotherThan(t, failed)
	}, mend: func(t *testing.T, w *world) { w.servers[failed].Start(t) }})
}

// TestKilledDuringFirstStart does so with the first primary, the copies of it and the beginning of replication.
func TestKilledDuringFirstStart(t *testing.T) {
	t.Parallel()
	testKilled(t, operation{name: "first start", begin: func(t *testing.T, w *world) func() error {
		w.anew(t)
		return func() error { return nil }
	}})
}

func testKilled(t *testing.T, o operation) {
	t.Helper()
	w := newWorld(t)
	w.addServers(t)
	w.anew(t)
	w.manage(t, "", func(*testenv.Process) { w.well(t, func() error { return nil }) })

	acts := w.through(t, o, "")
	t.Logf("the acts of a %s: %s", o.name, strings.Join(acts, "; "))
	struck := 0
	points := pointsOf(len(acts))
	for _, point := range points { // They share their servers, which end with the test that started them: no subtests.
		done := w.through(t, o, point)
		if reached := strings.HasPrefix(point, fmt.Sprint(len(done), " ")); reached {
			struck++
			t.Logf("killed %s: %s", point, done[len(done)-1])
		}
	}
	t.Logf("%d of %d points were reached", struck, len(points))
	if struck*2 < len(points) {
		t.Errorf("expected at least half of the points to be reached, found %d of %d", struck, len(points))
	}
}

// pointsOf are the points before and after each act, or some of them that lie far apart.
func pointsOf(acts int) []string {
	var all []string
	for n := 1; n <= acts; n++ {
		all = append(all, fmt.Sprint(n, " before"), fmt.Sprint(n, " after"))
	}
	if os.Getenv("TORPOR_E2E") == "full" || len(all) <= fewPoints {
		return all
	}
	var some []string
	for i := range fewPoints {
		some = append(some, all[(2*i+1)*len(all)/(2*fewPoints)])
	}
	return some
}

// through takes the cluster through the operation with a manager that dies at the point, and then with another one, while
// a client writes. It returns what the first one did.
func (w *world) through(t *testing.T, o operation, point string) []string {
	t.Helper()
	ended := o.begin(t, w)
	client := w.write(t)
	defer client.stop()
	var acts []string
	finish := func(p *testenv.Process) {
		mended := o.mend == nil
		testenv.Eventually(t, o.name+" is over, or its manager", func() error {
			acts = actsOf(p)
			select {
			case <-p.Done():
				return nil
			default:
			}
			if !mended && ended() == nil {
				mended = true
				o.mend(t, w)
			}
			return errors.Join(ended(), w.isWell(t))
		})
		if point != "" {
			select {
			case <-p.Done():
			default:
				return
			}
			w.manage(t, "", func(*testenv.Process) {
				if !mended {
					testenv.Eventually(t, o.name+" goes on", ended)
					o.mend(t, w)
				}
				w.well(t, ended)
			})
		}
	}
	w.manage(t, point, finish)
	client.check(t, w)
	return acts
}

// manage runs a manager as a process of its own until f returns.
func (w *world) manage(t *testing.T, point string, f func(*testenv.Process)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, s := range w.servers {
		hosts = append(hosts, s.Address)
	}
	p := testenv.StartProcess(t, self, nil, []string{
		victimHub + "=" + w.hub.KubeconfigPath(t), victimHosts + "=" + strings.Join(hosts, ","), victimPoint + "=" + point,
	})
	f(p)
	p.Kill9(t)
}

func actsOf(p *testenv.Process) []string {
	var acts []string
	for line := range strings.Lines(p.Log()) {
		if said, ok := strings.CutPrefix(line, actLine); ok {
			acts = append(acts, strings.TrimSpace(said))
		}
	}
	return acts
}

// well waits until all is well.
func (w *world) well(t *testing.T, ended func() error) {
	t.Helper()
	testenv.Eventually(t, "all is well", func() error { return errors.Join(ended(), w.isWell(t)) })
}

// isWell looks for itself: one writable primary, the one that the status names, which every other instance follows.
func (w *world) isWell(t *testing.T) error {
	t.Helper()
	cluster := w.cluster(t)
	if c := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.HealthyCondition); c == nil || c.Status != "True" {
		return fmt.Errorf("found %+v", c)
	}
	const state = `select concat(@@read_only, @@super_read_only, ' ', ifnull((select concat(c.host, ' ', s.service_state, ' ', a.service_state)
		from performance_schema.replication_connection_configuration c
		join performance_schema.replication_connection_status s on s.channel_name = c.channel_name
		join performance_schema.replication_applier_status a on a.channel_name = c.channel_name where c.host <> ''), 'alone'))`
	p := cluster.Status.CurrentPrimaryIndex
	for i := range w.servers {
		want, role := "11 "+w.servers[p].Address+" ON ON", mocov1beta2.RoleReplica
		if i == p {
			want, role = "00 alone", mocov1beta2.RolePrimary
		}
		if got, err := w.tryAsk(t, i, state); err != nil || got != want {
			return fmt.Errorf("instance %d with the primary %d: expected %q, found %q (%w)", i, p, want, got, err)
		}
		var pod corev1.Pod
		if err := w.hub.Client.Get(t.Context(), client.ObjectKey{Namespace: w.name.Namespace, Name: fmt.Sprintf("moco-%s-%d", theName, i)}, &pod); err != nil {
			return err
		}
		if found := pod.Labels[mocov1beta2.RoleLabel]; found != string(role) || pod.Annotations[mocov1beta2.DemoteAnnotation] != "" {
			return fmt.Errorf("instance %d: expected the label %s and no demotion, found %q and %v", i, role, found, pod.Annotations)
		}
	}
	return nil
}

// anotherThan says whether another instance is the primary and takes writes.
func (w *world) anotherThan(t *testing.T, p int) func() error {
	return func() error {
		now := w.cluster(t).Status.CurrentPrimaryIndex
		if now == p {
			return fmt.Errorf("instance %d is the primary", p)
		}
		if got, err := w.tryAsk(t, now, "select @@read_only"); err != nil || got != "0" {
			return fmt.Errorf("instance %d is the primary and takes no writes (%w)", now, err)
		}
		return nil
	}
}

// anew makes the cluster a new one: of its servers one has rows, and the others are empty.
func (w *world) anew(t *testing.T) {
	t.Helper()
	old := &mocov1beta2.MySQLCluster{}
	old.Namespace, old.Name = w.name.Namespace, w.name.Name
	if err := client.IgnoreNotFound(w.hub.Client.Delete(t.Context(), old)); err != nil {
		t.Fatal(err)
	}
	for i, s := range w.servers {
		s.WipeData(t)
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = w.name.Namespace, fmt.Sprintf("moco-%s-%d", theName, i)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+mocov1beta2.RoleLabel+`":null}}}`))
		if err := w.hub.Client.Patch(t.Context(), pod, patch); err != nil {
			t.Fatal(err)
		}
		s.Start(t)
	}
	w.must(t, 0, "root", "set global read_only = 0", "create database app", "create table app.acked (id bigint primary key)", "set global super_read_only = 1")
	w.addCluster(t, nil)
}

// writer is a client that writes down what was acknowledged.
type writer struct {
	stop  func()
	acked []int64
}

// write begins to write rows with unique keys to whoever takes them.
func (w *world) write(t *testing.T) *writer {
	t.Helper()
	const patience, pace = 2 * time.Second, 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	found := &writer{}
	var running sync.WaitGroup
	found.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(found.stop)
	var servers []*sql.DB
	for i := range w.servers {
		servers = append(servers, w.connect(t, i, "app"))
	}
	first := w.clock.Now().UnixNano()
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for key := first; ctx.Err() == nil; key++ {
			takes := func(db *sql.DB) bool { return insert(ctx, db, key, patience) == nil }
			if slices.ContainsFunc(servers, takes) {
				found.acked = append(found.acked, key)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return found
}

func insert(ctx context.Context, db *sql.DB, key int64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := db.ExecContext(ctx, "insert into app.acked values (?)", key)
	return err
}

// check demands that every instance has every row that was acknowledged.
func (c *writer) check(t *testing.T, w *world) {
	t.Helper()
	c.stop()
	if len(c.acked) == 0 {
		t.Error("expected some writes to be acknowledged, found none")
		return
	}
	slices.Sort(c.acked)
	for i := range w.servers {
		testenv.Eventually(t, fmt.Sprintf("instance %d has all %d acknowledged rows", i, len(c.acked)), func() error {
			var keys []string
			for _, key := range c.acked {
				keys = append(keys, fmt.Sprint(key))
			}
			got, err := w.tryAsk(t, i, "select count(*) from app.acked where id in ("+strings.Join(keys, ",")+")")
			if err != nil || got != fmt.Sprint(len(c.acked)) {
				return fmt.Errorf("found %s (%w)", got, err)
			}
			return nil
		})
	}
}
