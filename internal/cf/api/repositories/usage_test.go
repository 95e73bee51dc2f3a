// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// TestUsageRequestsPauseWhileTheAPIIsUnavailable counts the requests that three calls send. The last call is made after
// the pause.
func TestUsageRequestsPauseWhileTheAPIIsUnavailable(t *testing.T) {
	t.Parallel()
	refuse := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   int32
	}{
		"an API that is not served: 2 requests for 3 calls":                  {refuse(http.StatusNotFound), 2},
		"an API whose server is down: 2 requests for 3 calls":                {refuse(http.StatusServiceUnavailable), 2},
		"an API whose server hangs: 2 requests for 3 calls":                  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 2},
		"a caller without the right to read metrics: 3 requests for 3 calls": {refuse(http.StatusForbidden), 3},
		"a caller that has sent too many requests: 3 requests for 3 calls":   {refuse(http.StatusTooManyRequests), 3},
		"an unreadable response: 3 requests for 3 calls":                     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[")) }, 3},
		"an instance without an index: 3 requests for 3 calls":               {func(w http.ResponseWriter, _ *http.Request) { writeMetrics(w, `{}`) }, 3},
		"a Pod without the app container: 3 requests for 3 calls":            {func(w http.ResponseWriter, _ *http.Request) { writeMetrics(w, `{"apps.kubernetes.io/pod-index":"0"}`) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				w.Header().Set("Content-Type", "application/json")
				row.answer(w, r)
			}))
			t.Cleanup(server.Close)
			kind := authorization.PodMetricsKind().GroupVersion()
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.AddSpecific(kind.WithKind("PodMetrics"), kind.WithResource("pods"), kind.WithResource("pod"), meta.RESTScopeNamespace)
			c, err := client.New(&rest.Config{Host: server.URL, QPS: -1}, client.Options{Mapper: mapper})
			if err != nil {
				t.Fatal(err)
			}
			now := testingclock.NewFakePassiveClock(time.Now())
			s, p := &Store{usage: &usageAvailability{clock: now}}, &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "web"}}
			for _, later := range []time.Duration{0, usagePause - time.Second, 2 * time.Second} {
				now.SetTime(now.Now().Add(later))
				if found := s.MeasureInstances(t.Context(), &authorization.Caller{Client: c}, p); len(found) > 0 {
					t.Errorf("expected no usage, found %v", found)
				}
			}
			if found := asked.Load(); found != row.want {
				t.Errorf("expected %d requests, found %d", row.want, found)
			}
		})
	}
}

func writeMetrics(w http.ResponseWriter, labels string) {
	_, _ = w.Write([]byte(`{"apiVersion":"metrics.k8s.io/v1beta1","kind":"PodMetricsList","items":[{"metadata":{"labels":` + labels + `},"containers":[{"name":"proxy"}]}]}`))
}
