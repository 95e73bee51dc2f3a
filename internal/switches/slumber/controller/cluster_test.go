// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// clusterStory has namespaces with Deployments, and a ClusterSlumber that stops them at night. No controller of
// Kubernetes runs: the test writes the status of the Deployments.
type clusterStory struct {
	*testenv.Environment
	clock   *clocktesting.FakePassiveClock
	run     string
	slumber *torporv1alpha1.ClusterSlumber
	// awake maps each Deployment to its replicas while it runs.
	awake map[client.ObjectKey]int32
	// requests counts requests of the manager. lists counts those that list Deployments, and namespacedLists those
	// among them that list a single namespace of the ClusterSlumber.
	requests, lists, namespacedLists atomic.Int64
}

func newClusterStory(t *testing.T) *clusterStory {
	t.Helper()
	s := &clusterStory{Environment: shared.Get(t), clock: clocktesting.NewFakePassiveClock(beforeNight()), awake: map[client.ObjectKey]int32{}}
	s.run = s.CreateNamespace(t)
	s.slumber = &torporv1alpha1.ClusterSlumber{ObjectMeta: metav1.ObjectMeta{Name: s.run}, Spec: torporv1alpha1.ClusterSlumberSpec{
		SlumberSpec: torporv1alpha1.SlumberSpec{
			Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}},
			Waves:   []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "Deployment"}}}},
			Reason:  "nobody works at night",
		},
		NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"run": s.run}},
	}}
	s.ExpectCreated(t, s.slumber)
	s.DeleteAfterTest(t, s.slumber)
	return s
}

// addNamespace creates a namespace that the ClusterSlumber selects.
func (s *clusterStory) addNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: s.run + "-", Labels: map[string]string{"run": s.run}}}
	maps.Copy(n.Labels, labels)
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), n))
	return n.Name
}

// addDeployment creates a running Deployment.
func (s *clusterStory) addDeployment(t *testing.T, namespace, name string, replicas int32, labels map[string]string) client.ObjectKey {
	t.Helper()
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "example.com/a"}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: new(replicas), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod,
	}}
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), d))
	key := client.ObjectKeyFromObject(d)
	s.awake[key] = replicas
	testenv.ExpectNoError(t, s.finish(t.Context(), key))
	return key
}

// finish writes the status of a Deployment as if its Pods matched its spec.
func (s *clusterStory) finish(ctx context.Context, key client.ObjectKey) error {
	var d appsv1.Deployment
	if err := s.Client.Get(ctx, key, &d); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	before := d.DeepCopy()
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: *d.Spec.Replicas, AvailableReplicas: *d.Spec.Replicas, ReadyReplicas: *d.Spec.Replicas, UpdatedReplicas: *d.Spec.Replicas}
	if err := s.Client.Status().Patch(ctx, &d, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// count counts requests, except watches, events and leases.
func (s *clusterStory) count(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		isWatch := r.URL.Query().Get("watch") != "" || strings.Contains(r.URL.Path, "/leases") || strings.Contains(r.URL.Path, "/events")
		if !isWatch {
			s.requests.Add(1)
		}
		if r.Method == http.MethodGet && !isWatch && strings.HasSuffix(r.URL.Path, "/deployments") {
			s.lists.Add(1)
			if strings.Contains(r.URL.Path, "/namespaces/"+s.run+"-") { // Requests for the Slumbers of other tests do not count.
				s.namespacedLists.Add(1)
			}
		}
		return base.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// startManager runs the controllers of Slumbers, ClusterSlumbers and Deployments.
func (s *clusterStory) startManager(t *testing.T) (stop func()) {
	t.Helper()
	return testenv.StartManager(t, s.WithTransport(s.count), func(mgr manager.Manager) error {
		members := &MemberKinds{}
		slumbers := Controller{Clock: s.clock, Metrics: NewMetrics(), Members: members}
		deployments := fieldswitchcontroller.Controller{Clock: s.clock, Kind: kinds.ListWorkloads()[0], Observer: members}
		return errors.Join(slumbers.SetupWithManager(mgr), ClusterController{Controller: slumbers}.SetupWithManager(mgr), deployments.SetupWithManager(mgr))
	})
}

// moveTo advances the time, and triggers a pass of the ClusterSlumber.
func (s *clusterStory) moveTo(t *testing.T, now time.Time) {
	t.Helper()
	s.clock.SetTime(now)
	s.ExpectAnnotated(t, s.slumber, map[string]string{"looked-at": now.Format(time.RFC3339Nano)})
}

// waitFor waits until exactly these Deployments are scaled to zero, writes the status of all, and waits for the
// state of the ClusterSlumber.
func (s *clusterStory) waitFor(t *testing.T, what string, state torporv1alpha1.SlumberState, stopped ...client.ObjectKey) {
	t.Helper()
	s.waitForReplicas(t, what, stopped...)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(maxWritesAtOnce)
	for key := range s.awake {
		group.Go(func() error { return s.finish(ctx, key) })
	}
	testenv.ExpectNoError(t, group.Wait())
	s.WaitFor(t, what+": the ClusterSlumber", s.slumber, func() error {
		return testenv.ErrorIf(s.slumber.Status.State != state, "found %+v", s.slumber.Status)
	})
}

// waitForReplicas waits until exactly these Deployments have no replicas, and all others have their original
// replicas.
func (s *clusterStory) waitForReplicas(t *testing.T, what string, stopped ...client.ObjectKey) {
	t.Helper()
	want := maps.Clone(s.awake)
	for _, key := range stopped {
		want[key] = 0
	}
	testenv.Eventually(t, what+": the replicas", func() error {
		var list appsv1.DeploymentList
		if err := s.Client.List(t.Context(), &list); err != nil {
			return err
		}
		wrong := 0
		for i := range list.Items {
			if replicas, isKnown := want[client.ObjectKeyFromObject(&list.Items[i])]; isKnown && *list.Items[i].Spec.Replicas != replicas {
				wrong++
			}
		}
		return testenv.ErrorIf(wrong > 0, "found other replicas of %d of %d Deployments; %+v", wrong, len(want), s.slumber.Status)
	})
}

// TestClusterSlumber follows two nights over several namespaces, with managers that die in between. Objects of a
// namespace that is created during the window are stopped, too. A Slumber and a label exclude objects, and every
// wake restores the replicas.
func TestClusterSlumber(t *testing.T) {
	s := newClusterStory(t)
	a, b := s.addNamespace(t, nil), s.addNamespace(t, nil)
	shop, blog := s.addDeployment(t, a, "shop", 3, nil), s.addDeployment(t, b, "blog", 2, nil)
	own := map[string]string{"own": "yes"}
	s.addDeployment(t, a, "own", 1, own)
	s.addDeployment(t, b, "excluded", 1, map[string]string{torporv1alpha1.ExcludeLabel: "true"})
	s.addDeployment(t, s.addNamespace(t, map[string]string{torporv1alpha1.ExcludeLabel: "true"}), "shop", 4, nil)
	s.addDeployment(t, s.run, "shop", 5, nil) // The ClusterSlumber does not select this namespace.
	ofTeam := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: s.slumber.Name}, Spec: *s.slumber.Spec.SlumberSpec.DeepCopy()}
	ofTeam.Spec.Suspend, ofTeam.Spec.Waves[0].Targets[0].Selector.MatchLabels = true, own
	s.ExpectCreated(t, ofTeam)

	stop := s.startManager(t)
	s.waitFor(t, "the day", torporv1alpha1.SlumberAwake)
	testenv.ExpectEqual(t, "members", int32(2), s.slumber.Status.Members)
	s.moveTo(t, beforeNight().Add(61*time.Minute))
	s.waitFor(t, "the night", torporv1alpha1.SlumberAsleep, shop, blog)
	record := s.readStops(t, shop)
	if len(record) != 1 || record[0].Slumber != "cluster_"+s.slumber.Name || record[0].Stops[0].By != "ClusterSlumber "+s.slumber.Name || record[0].Stops[0].Reason != "nobody works at night" {
		t.Errorf("expected one stop of the ClusterSlumber, found %+v", record)
	}
	late := s.addDeployment(t, s.addNamespace(t, nil), "late", 7, nil)
	s.waitFor(t, "a new namespace in the window", torporv1alpha1.SlumberAsleep, shop, blog, late)
	stop()
	later := s.addDeployment(t, s.addNamespace(t, nil), "later", 8, nil)
	stop = s.startManager(t)
	s.waitFor(t, "another manager", torporv1alpha1.SlumberAsleep, shop, blog, late, later)
	testenv.ExpectEqual(t, "members", int32(4), s.slumber.Status.Members)
	stop()

	s.clock.SetTime(beforeNight().Add(12*time.Hour + time.Second))
	stop = s.startManager(t)
	s.waitFor(t, "the morning", torporv1alpha1.SlumberAwake)
	if record := s.readStops(t, late)[0].Stops[0]; record.StartedBy != "ClusterSlumber "+s.slumber.Name || record.EndedAt == nil {
		t.Errorf("expected the end to be recorded, found %+v", record)
	}

	s.moveTo(t, beforeNight().Add(25*time.Hour))
	s.waitFor(t, "the next night", torporv1alpha1.SlumberAsleep, shop, blog, late, later)
	ofTeam = &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: b, Name: "of-team"}, Spec: *s.slumber.Spec.SlumberSpec.DeepCopy()}
	ofTeam.Spec.Suspend = true
	s.ExpectCreated(t, ofTeam)
	s.waitFor(t, "a Slumber of the namespace takes its objects over", torporv1alpha1.SlumberAsleep, shop, late, later)
	testenv.ExpectNoError(t, s.Client.Delete(t.Context(), ofTeam))
	s.waitFor(t, "the Slumber is deleted", torporv1alpha1.SlumberAsleep, shop, blog, late, later)
	testenv.ExpectNoError(t, s.Client.Delete(t.Context(), s.slumber))
	testenv.Eventually(t, "a deleted ClusterSlumber releases everything", func() error {
		for key := range s.awake {
			if stops := s.readStops(t, key); len(stops) > 0 {
				return fmt.Errorf("found %+v in %s", stops, key)
			}
		}
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(s.slumber), s.slumber)
		return testenv.ErrorIf(!k8serrors.IsNotFound(err), "expected no ClusterSlumber, found %v: %v", s.slumber.Finalizers, err)
	})
	s.waitForReplicas(t, "the ClusterSlumber is deleted")
	stop()
}

func (s *clusterStory) readStops(t *testing.T, key client.ObjectKey) []torporv1alpha1.ScheduledStop {
	t.Helper()
	var d appsv1.Deployment
	testenv.ExpectNoError(t, s.Client.Get(t.Context(), key, &d))
	return fieldswitch.ReadSwitch(&d).Scheduled
}

// TestClusterSlumberAtScale counts the requests of a night over many namespaces. Their number per Deployment and
// transition is limited, and no namespace is listed separately.
func TestClusterSlumberAtScale(t *testing.T) {
	s := newClusterStory(t)
	namespaces, deployments := testenv.CountRepetitions(20, 1000), 5
	var all []client.ObjectKey
	for range namespaces {
		namespace := s.addNamespace(t, nil)
		for i := range deployments {
			all = append(all, s.addDeployment(t, namespace, fmt.Sprint("d", i), int32(i+1), nil))
		}
	}
	defer s.startManager(t)()
	s.waitFor(t, "the day", torporv1alpha1.SlumberAwake)
	for _, row := range []struct {
		what    string
		at      time.Time
		state   torporv1alpha1.SlumberState
		stopped []client.ObjectKey
	}{
		{"falling asleep", beforeNight().Add(61 * time.Minute), torporv1alpha1.SlumberAsleep, all},
		{"waking up", beforeNight().Add(12*time.Hour + time.Second), torporv1alpha1.SlumberAwake, nil},
	} {
		requests, lists := s.requests.Load(), s.lists.Load()
		s.moveTo(t, row.at)
		s.waitFor(t, row.what, row.state, row.stopped...)
		requests, lists = s.requests.Load()-requests, s.lists.Load()-lists
		perDeployment := float64(requests) / float64(len(all))
		t.Logf("%s of %d Deployments in %d namespaces: %.2f requests for each, %d lists of Deployments in all", row.what, len(all), namespaces, perDeployment, lists)
		if perDeployment > maxRequestsPerDeployment || s.namespacedLists.Load() > 0 {
			t.Errorf("%s: expected at most %d requests for each Deployment and no list of a namespace, found %.2f and %d", row.what, maxRequestsPerDeployment, perDeployment, s.namespacedLists.Load())
		}
	}
}

// maxRequestsPerDeployment limits the requests per Deployment in one transition.
const maxRequestsPerDeployment = 6
