// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.RunWithoutLeaks(m, func() error { return goleak.Find() }))
}

// silentTransport simulates a server that never responds.
type silentTransport struct{}

func (silentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func open(t *testing.T, cfg *rest.Config, scheme *runtime.Scheme) (*SharedState, func()) {
	t.Helper()
	h, release, err := AcquireState(APIServer{Config: cfg, HTTPClient: &http.Client{Transport: silentTransport{}}, Scheme: scheme}, logr.Discard())
	testenv.Must(t, err)
	return h, release
}

func gathered(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	values := map[string]float64{}
	for _, f := range families {
		gauge := f.GetMetric()[0].GetGauge()
		if name, ours := strings.CutPrefix(f.GetName(), "conditional_"); ours && gauge != nil {
			values[name] = gauge.GetValue()
		}
	}
	return values
}

func TestHubsAreSharedAndCounted(t *testing.T) {
	cfg, other := &rest.Config{Host: "http://127.0.0.1:1"}, &rest.Config{Host: "http://127.0.0.1:2"}
	one, leave := open(t, cfg, clientgoscheme.Scheme)
	same, leaveSame := open(t, cfg, clientgoscheme.Scheme)
	if one != same {
		t.Error("the same config and scheme gave two hubs")
	}
	decodes, leaveDecodes := open(t, cfg, runtime.NewScheme())
	if decodes == one {
		t.Error("two schemes share a hub, whose informers can decode with one only")
	}
	elsewhere, leaveElsewhere := open(t, other, clientgoscheme.Scheme)
	pods := informers.InformerKind{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Plural: "pods", Namespaced: true}
	var leases []*informers.Lease
	for _, h := range []*SharedState{one, one, elsewhere} {
		l, err := h.Informers.Lease(t.Context(), pods, nil)
		testenv.Must(t, err)
		leases = append(leases, l)
	}
	want := map[string]float64{"groups": 0, "api_servers": 2, "active_informers": 2, "informer_refs": 3, "degraded": 0}
	if diff := cmp.Diff(want, gathered(t)); diff != "" {
		t.Error(diff)
	}
	for _, l := range leases {
		l.Release()
	}
	testenv.Eventually(t, "the informers have stopped", func(context.Context) (bool, error) {
		return one.Informers.InformerCount()+elsewhere.Informers.InformerCount() == 0, nil
	})
	for _, release := range []func(){leave, leave, leaveSame, leaveDecodes, leaveElsewhere} {
		release() // Calling a release function twice has no effect.
	}
	want = map[string]float64{"groups": 0, "api_servers": 0, "active_informers": 0, "informer_refs": 0}
	if diff := cmp.Diff(want, gathered(t)); diff != "" {
		t.Error(diff)
	}
}

// countedCollector counts how often all metrics are collected, which takes time proportional to the number of series.
type countedCollector struct{ count atomic.Int32 }

func (*countedCollector) Describe(to chan<- *prometheus.Desc) {
	to <- prometheus.NewDesc("test_collected", "Nothing.", nil, nil)
}

func (c *countedCollector) Collect(chan<- prometheus.Metric) { c.count.Add(1) }

func TestSeriesOfAControllerAreDeletedWithoutReadingOthers(t *testing.T) {
	registry, err := RegistryOf(nil)
	testenv.Must(t, err)
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "deleted"})
	queue.Add(1)
	queue.ShutDown()
	counted := &countedCollector{}
	testenv.Must(t, metrics.Registry.Register(counted))
	defer metrics.Registry.Unregister(counted)
	registry.DeleteQueueGauges("deleted")
	registry.DeleteSeries("deleted")
	if n := counted.count.Load(); n != 0 {
		t.Errorf("expected no look at all metrics, found %d: many groups that stop together would each wait for one", n)
	}
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "deleted" {
					t.Errorf("expected no series of the controller, found one of %s", f.GetName())
				}
			}
		}
	}
}
