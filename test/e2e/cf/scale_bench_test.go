// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

const (
	allSpaces, ownSpaces              = 1000, 3
	manyDeployments, deploymentsOfApp = 100_000, 20
	talkativePods, logBytes           = 30, 4 << 20
	logRounds, runningInstances       = 6, 2
	followedPods                      = 10
	// followTime is how long a client follows logs; followPause and shownAfter are constants of the cf client.
	followTime, followPause  = 20 * time.Second, 250 * time.Millisecond
	shownAfter, lineInterval = 2 * time.Second, 500 * time.Millisecond
)

// lineWidths are the lengths of three kinds of lines: usual ones, ones so long that an answer holds only a few, and
// ones that are truncated.
var lineWidths = [...]int{100, 10_000, 100_000}

// inParallel calls a function n times in a few goroutines, and fails the test with the first error. On an overloaded
// machine, calls of the admission webhook time out; then it repeats the call. It ignores errors of type AlreadyExists.
func inParallel(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for writer := range writers {
		group.Go(func() error {
			for i := writer; i < n; i += writers {
				err := do(ctx, i)
				for begin := time.Now(); (k8serrors.IsInternalError(err) || k8serrors.IsTimeout(err)) && time.Since(begin) < patience; {
					err = do(ctx, i)
				}
				if client.IgnoreAlreadyExists(err) != nil {
					return err
				}
			}
			return nil
		})
	}
	testenv.ExpectNoError(t, group.Wait())
}

// createSpacesOfOthers creates namespaces with the labels of spaces, without a role for any user of the tests.
func (w *env) createSpacesOfOthers(t *testing.T, n int) {
	t.Helper()
	inParallel(t, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("others-%04d", i)
		return w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			korifiv1alpha1.OrgGUIDLabel: w.org, korifiv1alpha1.SpaceGUIDLabel: name,
		}}})
	})
}

// pathsOfApps returns the paths that cf apps requests in a space.
func pathsOfApps(space string, apps []string) []string {
	return []string{
		"/v3/spaces?guids=" + space + "&per_page=1", "/v3/apps?order_by=name&per_page=5000&space_guids=" + space,
		"/v3/processes?embed=process_instances&per_page=5000&space_guids=" + space, "/v3/routes?app_guids=" + strings.Join(apps, ","),
	}
}

// countReviews returns the number of access reviews that the API makes for the first request of a new caller.
func (c *requestCounter) countReviews(t *testing.T, w *env, path string) int {
	t.Helper()
	stranger := w.newCaller(t, "alice")
	c.takeCounts()
	stranger.expectStatus(t, http.StatusOK, "GET", path, "")
	kinds, _ := c.takeCounts()
	reviews := 0
	for kind, n := range kinds {
		if strings.HasPrefix(kind, "POST selfsubjectaccessreviews by ") {
			reviews += n
		}
	}
	return reviews
}

// TestNamedSpacesCostFewReviews has many spaces; the developer of one space requests only that space.
func TestNamedSpacesCostFewReviews(t *testing.T) {
	t.Parallel()
	const others, most = 60, 10
	through := &requestCounter{}
	w := newEnvOn(t, testenv.Start(t), through)
	w.createSpacesOfOthers(t, others)
	space := w.createSpace(t)
	app := w.newCaller(t, "alice").createApp(t, space, "shop", 1, "STOPPED")
	if found := through.countReviews(t, w, "/v3/apps"); found < others {
		t.Fatalf("expected a review of each of %d spaces where none is named, found %d", others, found)
	}
	for _, path := range append(pathsOfApps(space, []string{app}), "/v3/spaces/"+space, "/v3/deployments?app_guids="+app, "/v3/audit_events?target_guids="+app) {
		found := through.countReviews(t, w, path)
		t.Logf("%d reviews: %s", found, path)
		if found > most {
			t.Errorf("%s: expected at most %d reviews, found %d", path, most, found)
		}
	}
}

// benchSpaces lists the apps of one of a thousand spaces as cf apps does, as a developer in three spaces.
func benchSpaces(t *testing.T, figures map[string]float64) {
	through := &requestCounter{}
	w := newEnvOn(t, testenv.Start(t), through)
	w.createSpacesOfOthers(t, allSpaces-ownSpaces)
	alice := w.newCaller(t, "alice")
	var paths []string
	for range ownSpaces {
		space := w.createSpace(t)
		var apps []string
		for i := range 5 {
			apps = append(apps, alice.createApp(t, space, "shop-"+strconv.Itoa(i), 1, "STOPPED"))
		}
		paths = append(paths, pathsOfApps(space, apps)...)
	}
	begin := time.Now()
	t.Logf("a list of all spaces: %d reviews, %s", through.countReviews(t, w, "/v3/apps"), time.Since(begin))
	for _, path := range paths {
		figures["reviews_per_request"] = max(figures["reviews_per_request"], float64(through.countReviews(t, w, path)))
	}
	var took []time.Duration
	for range listRounds {
		for _, path := range paths {
			begin := time.Now()
			alice.expectStatus(t, http.StatusOK, "GET", path, "")
			took = append(took, time.Since(begin))
		}
	}
	figures["apps_1000_spaces_p99_seconds"] = quantile(took, p99)
}

// benchDeployments lists the deployments of one app among thousands of others, as cf app does. The controller of
// deployments, which keeps only twenty per app, does not run.
func benchDeployments(t *testing.T, figures map[string]float64) {
	w := newEnvOn(t, testenv.Start(t), nil, "--controllers=*,-deployments")
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	begin := time.Now()
	inParallel(t, manyDeployments, func(ctx context.Context, i int) error {
		d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprintf("d-%06d", i)}}
		d.Spec = torporv1alpha1.CFDeploymentSpec{AppRef: torporv1alpha1.AppReference{Name: fmt.Sprintf("app-%d", i/deploymentsOfApp)}, Strategy: torporv1alpha1.RollingDeployment, MaxInFlight: 1}
		if i < deploymentsOfApp {
			d.Spec.AppRef.Name = app
		}
		return w.Client.Create(ctx, d)
	})
	t.Logf("%d deployments were created in %s", manyDeployments, time.Since(begin))
	testenv.Eventually(t, "the API has cached all deployments", func() error {
		all := alice.expectStatus(t, http.StatusOK, "GET", "/v3/deployments?per_page=1", "")
		return testenv.ErrorIf(conversation.JSONField(t, all, "pagination.total_results") != strconv.Itoa(manyDeployments), "found %.200s", all)
	})
	took := make([]time.Duration, listRounds)
	for i := range took {
		begin := time.Now()
		found := alice.expectStatus(t, http.StatusOK, "GET", "/v3/deployments?status_values=ACTIVE&order_by=-created_at&per_page=1&app_guids="+app, "")
		if took[i] = time.Since(begin); i == 0 && conversation.JSONField(t, found, "pagination.total_results") != strconv.Itoa(deploymentsOfApp) {
			t.Fatalf("found %s", found)
		}
	}
	figures["deployments_of_app_p99_seconds"] = quantile(took, p99)
}

// benchLogs reads the recent logs of an app with large logs in all Pods.
func benchLogs(t *testing.T, figures map[string]float64) {
	w := newEnvOn(t, testenv.Start(t), nil)
	var said atomic.Pointer[[]byte]
	node := w.StartKubelet(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(*said.Load()) }))
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	w.createPodsOn(t, node, space, app, talkativePods)
	const heap = "go_memstats_heap_alloc_bytes"
	before := w.readMetric(t, w.apiMetrics, heap)
	for round := range logRounds {
		line := []byte(time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano) + " " + strings.Repeat("x", lineWidths[round%len(lineWidths)]) + "\n")
		said.Store(new(bytes.Repeat(line, logBytes/len(line))))
		var done atomic.Bool
		var request sync.WaitGroup
		request.Go(func() {
			defer done.Store(true)
			if a, err := alice.send(t.Context(), http.MethodGet, "/api/v1/read/"+app+"?descending=true&envelope_types=LOG&limit=1000", ""); err != nil || a.Status != http.StatusOK {
				t.Errorf("found %d %.200s (%v)", a.Status, a.Body, err)
			}
		})
		for !done.Load() {
			figures["logs_request_heap_bytes"] = max(figures["logs_request_heap_bytes"], w.readMetric(t, w.apiMetrics, heap)-before)
		}
		request.Wait()
		t.Logf("lines of %d bytes: %.1f MiB", len(line), figures["logs_request_heap_bytes"]/(1<<20))
	}
}

// createPodsOn creates Pods of an app on a node whose kubelet serves their logs.
func (w *env) createPodsOn(t *testing.T, node, space, app string, pods int) {
	t.Helper()
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "default"}})
	for i := range pods {
		w.ExpectCreated(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop-" + strconv.Itoa(i), Labels: map[string]string{korifiv1alpha1.AppGUIDLabel: app, appsv1.PodIndexLabel: strconv.Itoa(i)}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: eiriniv1.ApplicationContainer, Image: "shop:1", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}}},
		})
	}
}

// benchFollowers counts the requests to Kubernetes while a client follows the logs of an app of ten instances. The
// client polls without a pause while there are lines to show, and otherwise every quarter of a second. The client shows
// no line that is less than two seconds old.
func benchFollowers(t *testing.T, figures map[string]float64) {
	through := &requestCounter{}
	w := newEnvOn(t, testenv.Start(t), through)
	var isTalking atomic.Bool
	node := w.StartKubelet(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		since, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime"))
		for at := time.Now().Truncate(time.Second).Add(-time.Minute); isTalking.Load() && at.Before(time.Now()); at = at.Add(lineInterval) {
			if !at.Before(since) {
				_, _ = fmt.Fprintf(rw, "%s a line\n", at.UTC().Format(time.RFC3339Nano))
			}
		}
	}))
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	w.createPodsOn(t, node, space, app, followedPods)
	pause := time.NewTicker(followPause)
	defer pause.Stop()
	for name, talking := range map[string]bool{"quiet": false, "talking": true} {
		isTalking.Store(talking)
		begin, from, looks, lines := time.Now(), time.Now().Add(-time.Second).UnixNano(), 0, 0
		through.takeCounts()
		for ; time.Since(begin) < followTime; looks++ {
			var answer struct {
				Envelopes struct {
					Batch []struct {
						Timestamp string `json:"timestamp"`
					} `json:"batch"`
				} `json:"envelopes"`
			}
			body := alice.expectStatus(t, http.StatusOK, "GET", fmt.Sprintf("/api/v1/read/%s?envelope_types=LOG&start_time=%d", app, from), "")
			testenv.ExpectNoError(t, json.Unmarshal([]byte(body), &answer))
			visible, before := time.Now().Add(-shownAfter).UnixNano(), lines
			for _, line := range answer.Envelopes.Batch {
				at, err := strconv.ParseInt(line.Timestamp, 10, 64)
				testenv.ExpectNoError(t, err)
				if at <= visible {
					from, lines = at+1, lines+1
				}
			}
			if lines == before {
				pause.Reset(followPause)
				<-pause.C
			}
		}
		kinds, total := through.takeCounts()
		t.Logf("%s: %d polls and %d lines in %s, %v", name, looks, lines, time.Since(begin), kinds)
		figures["follow_logs_"+name+"_requests_per_second"] = float64(total) / time.Since(begin).Seconds()
	}
}

// readMetric returns the value of a metric without labels.
func (w *env) readMetric(t *testing.T, address, name string) float64 {
	t.Helper()
	found := readMetrics(t, address, name+" ")
	if len(found) != 1 {
		t.Fatalf("expected the metric %s, found %d", name, len(found))
	}
	return found[0]
}

// readMetrics returns the values of the lines of metrics with a prefix.
func readMetrics(t *testing.T, address, begin string) (found []float64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	testenv.ExpectNoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	testenv.ExpectNoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, begin) {
			fields := strings.Fields(line)
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			testenv.ExpectNoError(t, err)
			found = append(found, value)
		}
	}
	return found
}

// playStatefulSets acts as the controller of StatefulSets: it creates Pods that are ready immediately, and deletes Pods
// beyond the replicas.
func (w *env) playStatefulSets(t *testing.T) func([]client.Object, string, watch.Event) {
	t.Helper()
	ctx := t.Context()
	known := map[types.UID]int64{}
	return func(all []client.Object, _ string, news watch.Event) {
		if o, ok := news.Object.(client.Object); ok && news.Type != watch.Deleted {
			all = []client.Object{o}
		}
		for _, o := range all {
			set, ok := o.(*appsv1.StatefulSet)
			if !ok || known[set.UID] == set.Generation {
				continue
			}
			known[set.UID] = set.Generation
			if err := w.playStatefulSet(ctx, set); err != nil && ctx.Err() == nil {
				t.Errorf("play %s: %v", set.Name, err)
			}
		}
	}
}

func (w *env) playStatefulSet(ctx context.Context, set *appsv1.StatefulSet) error {
	for i := range *set.Spec.Replicas {
		index := strconv.Itoa(int(i))
		pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.Spec.NodeName = set.Namespace, set.Name+"-"+index, "node"
		pod.Labels[appsv1.PodIndexLabel] = index
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		if err := w.Client.Create(ctx, pod); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		now := metav1.NewTime(time.Now())
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: eiriniv1.ApplicationContainer, Image: "shop:1", Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}},
		}
		if err := w.Client.Status().Update(ctx, pod); err != nil {
			return err
		}
	}
	for i := *set.Spec.Replicas; i < runningInstances; i++ {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name + "-" + strconv.Itoa(int(i))}}
		if err := w.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	after := set.DeepCopy()
	after.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: *set.Spec.Replicas, ReadyReplicas: *set.Spec.Replicas}
	return w.Client.Status().Patch(ctx, after, client.MergeFrom(set))
}
