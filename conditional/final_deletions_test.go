// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// cleaner is a reconciler that cleans up resources outside of the cluster after its object is deleted. It does not use
// a finalizer, so it depends on the reconcile after the deletion.
type cleaner struct {
	client.Reader
	takes time.Duration
	block chan struct{} // if not nil, every clean-up waits until this channel is closed

	mu      sync.Mutex
	created map[string]bool
	cleaned map[string]bool
}

func newCleaner(c client.Reader) *cleaner {
	return &cleaner{Reader: c, created: map[string]bool{}, cleaned: map[string]bool{}}
}

func (c *cleaner) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	err := c.Get(ctx, req.NamespacedName, newWidget())
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	into := c.created
	if err != nil {
		into = c.cleaned
		select {
		case <-ctx.Done():
			return reconcile.Result{}, ctx.Err()
		case <-c.block:
		case <-time.After(c.takes):
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	into[req.Name] = true
	return reconcile.Result{}, nil
}

func (c *cleaner) counts() (created, cleaned int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.created), len(c.cleaned)
}

// fill creates objects, and waits until the controller has reconciled them.
func (c *cleaner) fill(s *apiServer, objects int) {
	s.t.Helper()
	for i := range objects {
		s.createWidgetIn("default", fmt.Sprint("w", i))
	}
	s.eventually("the controller has seen all objects", func(context.Context) (bool, error) {
		created, _ := c.counts()
		return created == objects, nil
	})
}

func TestTheLastDeletionsOfACRDAreReconciled(t *testing.T) {
	const objects = 100
	s := startAPIServer(t)
	setUps := map[string]func(mgr manager.Manager, c *cleaner) (*Group, error){
		"controller of plain controller-runtime": func(mgr manager.Manager, c *cleaner) (*Group, error) {
			return nil, ctrl.NewControllerManagedBy(mgr).For(newWidget()).Named("deletions-plain").Complete(c)
		},
		"controller of the conditional builder": func(mgr manager.Manager, c *cleaner) (*Group, error) {
			return NewControllerManagedBy(mgr).For(newWidget()).Named("deletions-builder").Build(c)
		},
		"controller of a setup function with client-go's queue": func(mgr manager.Manager, c *cleaner) (*Group, error) {
			return Setup(mgr, Served(widgetKind()), func(mgr manager.Manager) error {
				c.Reader = mgr.GetClient()
				return ctrl.NewControllerManagedBy(mgr).For(newWidget()).Named("deletions-setup").
					WithOptions(controller.Options{UsePriorityQueue: new(false), MaxConcurrentReconciles: 2}).Complete(c)
			}, Name("deletions-setup"))
		},
	}
	for name, setUp := range setUps {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{t: t, env: s.env, cfg: s.cfg, scheme: s.scheme}
			def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
			s.installCRD(def)
			mgr := s.newManagerFor(s.cfg)
			c := newCleaner(mgr.GetClient())
			c.takes = 10 * time.Millisecond
			g, err := setUp(mgr, c)
			testenv.Must(t, err)
			defer s.startManager(mgr)()
			c.fill(s, objects)
			s.uninstallCRD(def)
			s.waitUntilGone(def)
			if g != nil {
				s.waitForPhase(g, Dormant)
			}
			s.eventually("all deletions are reconciled", func(context.Context) (bool, error) {
				_, cleaned := c.counts()
				if g != nil && cleaned < objects {
					return false, fmt.Errorf("the group is Dormant after %d of %d deletions", cleaned, objects)
				}
				return cleaned == objects, nil
			})
			if g != nil {
				wantNoQueueGauges(t, g.Status().Name)
			}
		})
	}
}

func TestTheLastDeletionsAreReconciledThoughTheirWatchIsAway(t *testing.T) {
	const objects = 20
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	s.installCRD(def)
	p := s.newProxy(s.cfg)
	mgr := s.newManagerFor(p.config())
	c := newCleaner(mgr.GetCache()) // The client reads unstructured objects from the server.
	g, err := NewControllerManagedBy(mgr).For(newWidget()).Named("deletions-unwatched").Build(c)
	testenv.Must(t, err)
	defer s.startManager(mgr)()
	c.fill(s, objects)
	ofObjects := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/widgets") && r.URL.Query().Get("fieldSelector") == "" // The detector's requests have a field selector.
	}
	away := answerStatus(http.StatusServiceUnavailable, "ServiceUnavailable")
	p.setFault(onRequests(ofObjects, away))
	p.cutStreams(ofObjects)
	s.uninstallCRD(def)
	s.waitUntilGone(def)
	s.eventually("the group knows that its kind is gone", func(context.Context) (bool, error) {
		return g.currentOrders().lastKnown.State == False, nil
	})
	p.setFault(away) // The detector remembers the deletion of the CRD while the group waits for the last events.
	s.waitForPhase(g, Dormant)
	if _, cleaned := c.counts(); cleaned != objects {
		t.Errorf("the group is Dormant after %d of %d deletions", cleaned, objects)
	}
}

func TestDeletionsThatTakeTooLongAreCountedAndDropped(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	s.installCRD(def)
	mgr := s.newManagerFor(s.cfg)
	c := newCleaner(mgr.GetClient())
	c.block, c.takes = make(chan struct{}), time.Hour
	recorded := events.NewFakeRecorder(100)
	g, err := NewControllerManagedBy(mgr).For(newWidget()).Named("deletions-late").
		WithGroup(DrainTimeout(time.Second), Events(recorded, &apiextensionsv1.CustomResourceDefinition{})).Build(c)
	testenv.Must(t, err)
	s.startManager(mgr)
	c.fill(s, 10)
	s.uninstallCRD(def)
	s.waitForPhase(g, Dormant)
	if got := strings.Join(recordedEvents(recorded), "\n"); !strings.Contains(got, ControllerDropped) || !strings.Contains(got, "10 requests") {
		t.Errorf("the events are\n%s\nwant %s with 10 requests", got, ControllerDropped)
	}
	wantNoQueueGauges(t, "deletions-late")
}

// wantNoQueueGauges checks that the gauges of a queue that was shut down are 0 or absent.
func wantNoQueueGauges(t *testing.T, controller string) {
	t.Helper()
	for name, value := range seriesOf(t, controller) {
		if value != 0 && (name == "workqueue_depth" || name == "workqueue_unfinished_work_seconds" || name == "workqueue_longest_running_processor_seconds" || name == "controller_runtime_active_workers") {
			t.Errorf("%s of the stopped controller %s is %v, want 0 or no series", name, controller, value)
		}
	}
}

// seriesOf returns the sums of a controller's gauges, and 1 for each of its other metrics.
func seriesOf(t *testing.T, controller string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				switch {
				case (l.GetName() != "controller" && l.GetName() != "group") || l.GetValue() != controller:
				case m.GetGauge() != nil:
					found[f.GetName()] += m.GetGauge().GetValue()
				default:
					found[f.GetName()]++
				}
			}
		}
	}
	return found
}

func TestTheDepthOfAQueueDoesNotDriftFromStopToStop(t *testing.T) {
	s := startAPIServer(t)
	for i := range 20 {
		s.createConfigMap(fmt.Sprint("cm", i))
	}
	when := switchedCondition{says: make(chan Status)}
	mgr := s.newManagerFor(s.cfg)
	var working atomic.Int32
	g := mustSetUp(t, mgr, when, func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("drifting").
			Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				working.Add(1)
				<-ctx.Done()
				return reconcile.Result{}, nil
			}))
	}, RestartLimit(100, wait.Backoff{Duration: time.Second}), Name("drifting"))
	s.startManager(mgr)
	for range 4 {
		working.Store(0)
		when.says <- Status{State: True}
		s.eventually("the queue is full", func(context.Context) (bool, error) {
			return working.Load() == 1 && seriesOf(t, "drifting")["workqueue_depth"] >= 19, nil
		})
		when.says <- Status{State: False}
		s.waitForPhase(g, Dormant)
		wantNoQueueGauges(t, "drifting")
	}
}
