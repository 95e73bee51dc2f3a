// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
	testenv "github.com/torpor-dev/torpor/test/env"
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, func(t testing.TB) *testenv.Environment { return testenv.Start(t) })
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

// story is a namespace with clusters, and a Slumber that stops them at night. The test sets the time.
type story struct {
	*testenv.Environment
	namespace string
	clock     *clocktesting.FakePassiveClock
	slumber   *torporv1alpha1.Slumber
	clusters  map[string]*hivev1.ClusterDeployment
	// metrics are the metrics of the manager that was started last.
	metrics *Metrics
}

func beforeNight() time.Time { return time.Date(2026, 11, 24, 19, 0, 0, 0, time.UTC) }

func newStory(t *testing.T) *story {
	t.Helper()
	env := shared.Get(t)
	s := &story{Environment: env, namespace: env.CreateNamespace(t), clock: clocktesting.NewFakePassiveClock(beforeNight()), clusters: map[string]*hivev1.ClusterDeployment{}}
	for _, name := range []string{"shop", "blog", "store"} {
		cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: s.namespace, Name: name}, "none", "none")
		cd.Labels["wave"] = map[string]string{"shop": "apps", "blog": "apps", "store": "databases"}[name]
		env.ExpectCreated(t, cd)
		s.clusters[name] = cd
		s.finish(t, name)
	}
	s.slumber = &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{
		Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}}, Reason: "nobody works at night",
	}}
	for _, wave := range []string{"apps", "databases"} {
		s.slumber.Spec.Waves = append(s.slumber.Spec.Waves, torporv1alpha1.SlumberWave{Name: wave, Targets: []torporv1alpha1.SlumberTarget{{
			Kind: "ClusterDeployment", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": wave}},
		}}})
	}
	env.ExpectCreated(t, s.slumber)
	return s
}

// startManager runs the controller until the test ends or stop is called.
func (s *story) startManager(t *testing.T) (stop func()) {
	t.Helper()
	s.metrics = NewMetrics()
	return testenv.StartManager(t, s.Environment, Controller{Clock: s.clock, Metrics: s.metrics}.SetupWithManager)
}

// finish writes the status that the cluster's own controller reports once the machines are in the requested state.
func (s *story) finish(t *testing.T, name string) {
	t.Helper()
	cd := s.clusters[name]
	testenv.ExpectNoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	before := cd.DeepCopy()
	hibernating, ready := metav1.ConditionFalse, metav1.ConditionTrue
	if s.isWanted(cd) {
		hibernating, ready = metav1.ConditionTrue, metav1.ConditionFalse
	}
	meta.SetStatusCondition(&cd.Status.Conditions, metav1.Condition{Type: hivev1.ClusterHibernatingCondition, Status: hibernating, Reason: hivev1.HibernatingHibernationReason})
	meta.SetStatusCondition(&cd.Status.Conditions, metav1.Condition{Type: hivev1.ClusterReadyCondition, Status: ready, Reason: hivev1.RunningHibernationReason})
	testenv.ExpectNoError(t, s.Client.Status().Patch(t.Context(), cd, client.MergeFrom(before)))
}

// isWanted reports whether a stop of the cluster is requested.
func (s *story) isWanted(cd *hivev1.ClusterDeployment) bool {
	scheduled := stoprecord.FindScheduled(cd.Status.ScheduledStops, cd.Annotations, s.clock.Now())
	return hibernation.EffectivePowerState(cd.Spec.PowerState, cd.Status.Stops, scheduled, s.clock.Now()) == hivev1.PowerStateHibernating
}

// moveTo advances the time, and triggers a pass of the Slumber, because the test's clock does not.
func (s *story) moveTo(t *testing.T, now time.Time) {
	t.Helper()
	s.clock.SetTime(now)
	s.annotate(t, s.slumber, "looked-at", now.Format(time.RFC3339Nano))
}

func (s *story) annotate(t *testing.T, obj client.Object, name, value string) {
	t.Helper()
	change := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, name, value)
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, change)))
}

// waitFor waits until stops of exactly these clusters, sorted by name, are requested, and the Slumber has the state.
func (s *story) waitFor(t *testing.T, what string, state torporv1alpha1.SlumberState, stopped ...string) {
	t.Helper()
	s.WaitFor(t, what, s.slumber, func() error {
		var found []string
		for _, name := range []string{"blog", "shop", "store"} {
			cd := s.clusters[name]
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
				return err
			}
			if s.isWanted(cd) {
				found = append(found, name)
			}
		}
		return testenv.ErrorIf(fmt.Sprint(found) != fmt.Sprint(stopped) || s.slumber.Status.State != state || s.slumber.Status.ObservedGeneration != s.slumber.Generation,
			"expected %v to be stopped and %s, found %v and %+v", stopped, state, found, s.slumber.Status)
	})
}

// TestNightInWaves follows a night: the waves fall asleep in order, with a manager that dies in between, and wake in
// reverse order. The spec of the clusters is never written.
func TestNightInWaves(t *testing.T) {
	s := newStory(t)
	stop := s.startManager(t)
	s.waitFor(t, "all are awake", torporv1alpha1.SlumberAwake)
	testenv.ExpectEqual(t, "next transition", "2026-11-24T20:00:00Z", s.slumber.Status.NextTransitions[0].At.UTC().Format(time.RFC3339))

	s.moveTo(t, beforeNight().Add(61*time.Minute))
	s.waitFor(t, "the apps are stopped first", torporv1alpha1.SlumberFallingAsleep, "blog", "shop")
	s.finish(t, "blog")
	stop()
	s.finish(t, "shop")
	stop = s.startManager(t)
	s.waitFor(t, "the databases are stopped next", torporv1alpha1.SlumberFallingAsleep, "blog", "shop", "store")
	s.finish(t, "store")
	s.waitFor(t, "all sleep", torporv1alpha1.SlumberAsleep, "blog", "shop", "store")
	night := s.clusters["shop"].Status.ScheduledStops
	if len(night) != 1 || len(night[0].Stops) != 1 || night[0].Stops[0].By != "Slumber nights" || night[0].Stops[0].Reason != "nobody works at night" {
		t.Errorf("expected one stop of the Slumber, found %+v", night)
	}
	for name, cd := range s.clusters {
		if cd.Spec.PowerState != "" || cd.Generation != 1 {
			t.Errorf("%s: expected an unchanged spec, found %q in generation %d", name, cd.Spec.PowerState, cd.Generation)
		}
	}

	s.moveTo(t, beforeNight().Add(12*time.Hour+time.Second))
	s.waitFor(t, "the databases wake first", torporv1alpha1.SlumberWakingUp, "blog", "shop")
	s.finish(t, "store")
	s.waitFor(t, "the apps wake last", torporv1alpha1.SlumberWakingUp)
	s.finish(t, "blog")
	s.finish(t, "shop")
	s.waitFor(t, "all are awake again", torporv1alpha1.SlumberAwake)
	s.WaitForEvent(t, s.namespace, slumber.EventAllAwake, "Every object runs again")
	if record := s.clusters["store"].Status.ScheduledStops[0].Stops[0]; record.StartedBy != "Slumber nights" || record.EndedAt == nil {
		t.Errorf("expected the end to be recorded, found %+v", record)
	}
	stop()
}

// TestEachNightOfTenDaysStopsTheClusters follows more nights than a cluster records. The API server's schema and
// stoprecord.MaxScheduled must agree, or else the stop of a later night is rejected.
func TestEachNightOfTenDaysStopsTheClusters(t *testing.T) {
	s := newStory(t)
	stop := s.startManager(t)
	defer func() { stop() }()
	for night := range stoprecord.MaxScheduled + 2 {
		evening := beforeNight().Add(61*time.Minute + time.Duration(night)*24*time.Hour)
		s.moveTo(t, evening)
		s.waitFor(t, fmt.Sprintf("the apps are stopped in night %d", night), torporv1alpha1.SlumberFallingAsleep, "blog", "shop")
		s.finish(t, "blog")
		s.finish(t, "shop")
		s.waitFor(t, "the databases are stopped next", torporv1alpha1.SlumberFallingAsleep, "blog", "shop", "store")
		s.finish(t, "store")
		s.waitFor(t, "all sleep", torporv1alpha1.SlumberAsleep, "blog", "shop", "store")
		s.moveTo(t, evening.Add(11*time.Hour))
		s.waitFor(t, "the databases wake first", torporv1alpha1.SlumberWakingUp, "blog", "shop")
		s.finish(t, "store")
		s.waitFor(t, "the apps wake last", torporv1alpha1.SlumberWakingUp)
		s.finish(t, "blog")
		s.finish(t, "shop")
		s.waitFor(t, "all are awake", torporv1alpha1.SlumberAwake)
		for name, cd := range s.clusters {
			if found := cd.Status.ScheduledStops; len(found) != 1 || len(found[0].Stops) != min(night+1, stoprecord.MaxScheduled) {
				t.Errorf("%s: expected the last %d stops after night %d, found %+v", name, stoprecord.MaxScheduled, night, found)
			}
		}
	}
}

// TestUsersOverrideSlumbers has a cluster that a user stopped before the night, and two clusters for which users skip
// the Slumber's stop during the night. At the end, the Slumber is deleted.
func TestUsersOverrideSlumbers(t *testing.T) {
	s := newStory(t)
	stopped := []byte(`{"spec": {"powerState": "Hibernating"}}`)
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.clusters["store"], client.RawPatch(types.MergePatchType, stopped)))
	s.finish(t, "store")
	stop := s.startManager(t)
	s.waitFor(t, "the day", torporv1alpha1.SlumberAwake, "store")
	s.moveTo(t, beforeNight().Add(61*time.Minute))
	s.waitFor(t, "the night begins", torporv1alpha1.SlumberFallingAsleep, "blog", "shop", "store")
	skippedUntil := beforeNight().Add(3 * time.Hour).Format(time.RFC3339)
	s.annotate(t, s.clusters["shop"], torporv1alpha1.SkipUntilAnnotation, skippedUntil)
	s.finish(t, "blog")
	s.waitFor(t, "a skipped member does not hold up the wave", torporv1alpha1.SlumberAsleep, "blog", "store")
	if record := s.clusters["shop"].Status.ScheduledStops[0].Stops[0]; record.StartedBy != torporv1alpha1.SkipUntilAnnotation {
		t.Errorf("expected why it was started, found %+v", record)
	}
	s.annotate(t, s.clusters["blog"], torporv1alpha1.SkipUntilNotedAnnotation, skippedUntil+" by alice")
	s.annotate(t, s.clusters["blog"], torporv1alpha1.SkipUntilAnnotation, skippedUntil)
	s.waitFor(t, "a second member is skipped", torporv1alpha1.SlumberAsleep, "store")
	s.WaitFor(t, "the user who skipped it is recorded", s.clusters["blog"], func() error {
		record := s.clusters["blog"].Status.ScheduledStops[0].Stops[0]
		return testenv.ErrorIf(record.StartedBy != "alice", "found %+v", record)
	})
	s.moveTo(t, beforeNight().Add(3*time.Hour+time.Second))
	s.waitFor(t, "the skip is over", torporv1alpha1.SlumberAsleep, "blog", "shop", "store")

	testenv.ExpectNoError(t, s.Client.Delete(t.Context(), s.slumber))
	testenv.Eventually(t, "the deleted Slumber starts all clusters except the one that a user stopped", func() error {
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(s.slumber), s.slumber)
		for name, cd := range s.clusters {
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
				return err
			}
			if s.isWanted(cd) != (name == "store") {
				return fmt.Errorf("%s: found %+v", name, cd.Status.ScheduledStops)
			}
		}
		return testenv.ErrorIf(client.IgnoreNotFound(err) != nil || err == nil, "expected no Slumber, found %v: %v", s.slumber.Finalizers, err)
	})
	stop()
}

// TestInvalidSlumbersAreRefusedOrReported has Slumbers that the schema rejects, and one that only the controller can
// check.
func TestInvalidSlumbersAreRefusedOrReported(t *testing.T) {
	s := newStory(t)
	for what, change := range map[string]string{
		"a wave without targets":                        `{"spec": {"waves": [{"name": "a", "targets": []}]}}`,
		"a target of an unsupported kind":               `{"spec": {"waves": [{"name": "a", "targets": [{"kind": "Pod", "selector": {}}]}]}}`,
		"a wave timeout of zero":                        `{"spec": {"waveTimeout": "0s"}}`,
		"a holiday with a year in only one of its days": `{"spec": {"holidays": [{"first": "2026-12-24", "last": "--12-26"}]}}`,
		"a starting deadline of one second":             `{"spec": {"startingDeadlineSeconds": 1}}`,
	} {
		if err := s.Client.Patch(t.Context(), s.slumber.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change))); err == nil {
			t.Errorf("expected %s to be refused", what)
		}
	}
	s.clock.SetTime(beforeNight().Add(61 * time.Minute))
	stop := s.startManager(t)
	s.waitFor(t, "the night begins", torporv1alpha1.SlumberFallingAsleep, "blog", "shop")
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.slumber, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"timeZone": "Europe/Atlantis"}}`))))
	s.waitFor(t, "sleeping members remain asleep", torporv1alpha1.SlumberInvalid, "blog", "shop")
	s.WaitForEvent(t, s.namespace, slumber.EventInvalidSchedule, `found "Europe/Atlantis"`)
	if c := meta.FindStatusCondition(s.slumber.Status.Conditions, torporv1alpha1.SlumberStalledCondition); c == nil || c.Status != metav1.ConditionTrue || c.Reason != torporv1alpha1.SlumberInvalidReason {
		t.Errorf("expected the condition to say so, found %+v", c)
	}
	s.expectGauge(t, "torpor_slumber_stalled", 1)
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.slumber, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"timeZone": "UTC"}}`))))
	s.expectGauge(t, "torpor_slumber_stalled", 0)
	s.waitFor(t, "the wave continues", torporv1alpha1.SlumberFallingAsleep, "blog", "shop")
	stop()
}

// expectGauge waits until the Slumber's metric has a value, read from the manager's cache.
func (s *story) expectGauge(t *testing.T, name string, want float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.metrics)
	testenv.Eventually(t, fmt.Sprintf("%s is %g", name, want), func() error {
		families, err := registry.Gather()
		testenv.ExpectNoError(t, err)
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if strings.Contains(m.String(), strconv.Quote(s.namespace)) && family.GetName() == name {
					return testenv.ErrorIf(m.GetGauge().GetValue() != want, "found %g", m.GetGauge().GetValue())
				}
			}
		}
		return fmt.Errorf("expected it of the namespace %s, found none", s.namespace)
	})
}

// TestSlumberStopsMembersOfEveryKind has a MySQLCluster, an app, and a Deployment whose kind is announced and
// withdrawn. Each stores its stop where its controller reads it.
func TestSlumberStopsMembersOfEveryKind(t *testing.T) {
	env := shared.Get(t)
	namespace := env.CreateNamespace(t)
	clock := clocktesting.NewFakePassiveClock(beforeNight().Add(2 * time.Hour))
	db := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: namespace, Name: "db"}, 1)
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: namespace, Name: "app"})
	app.Spec.DesiredState = korifiv1alpha1.StartedState
	shop := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}}},
	}}
	env.ExpectCreated(t, db, app, shop)
	serving := []byte(`{"status": {"instances": [{"ordinal": 0, "role": "primary"}]}}`)
	testenv.ExpectNoError(t, env.Client.Status().Patch(t.Context(), db, client.RawPatch(types.MergePatchType, serving)))
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{
		Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}}, Waves: []torporv1alpha1.SlumberWave{{Name: "all"}},
	}}
	for _, kind := range []string{"MySQLCluster", "CFApp", "Deployment"} {
		s.Spec.Waves[0].Targets = append(s.Spec.Waves[0].Targets, torporv1alpha1.SlumberTarget{Kind: kind})
	}
	env.ExpectCreated(t, s)
	members := &MemberKinds{}
	stop := testenv.StartManager(t, env, Controller{Clock: clock, Metrics: NewMetrics(), Members: members}.SetupWithManager)
	defer stop()
	stalledBy := func() string {
		c := meta.FindStatusCondition(s.Status.Conditions, torporv1alpha1.SlumberStalledCondition)
		if c == nil || c.Status != metav1.ConditionTrue {
			return ""
		}
		return c.Reason
	}
	env.WaitFor(t, "the Slumber waits for Deployments to be announced", s, func() error {
		return testenv.ErrorIf(stalledBy() != "" || s.Status.Members != 2, "found %+v", s.Status)
	})
	clock.SetTime(clock.Now().Add(slumber.KindsGrace))
	testenv.ExpectNoError(t, env.Client.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"looked-at": "later"}}}`))))
	env.WaitFor(t, "the Slumber reports that Deployments cannot be stopped", s, func() error {
		return testenv.ErrorIf(stalledBy() != torporv1alpha1.SlumberKindMissingReason || s.Status.Members != 2, "found %+v", s.Status)
	})
	deployments := kinds.ListWorkloads()[0]
	members.AddKind(t.Context(), deployments, env.Client)
	env.WaitFor(t, "all members are counted", s, func() error {
		return testenv.ErrorIf(stalledBy() != "" || s.Status.Members != 3, "found %+v", s.Status)
	})
	testenv.Eventually(t, "each member has its stop", func() error {
		for _, o := range []client.Object{db, app, shop} {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
		}
		inDeployment := fieldswitch.ReadSwitch(shop).Scheduled
		return testenv.ErrorIf(len(db.Status.ScheduledStops) != 1 || len(app.Status.ScheduledStops) != 1 || len(inDeployment) != 1 || inDeployment[0].Stops[0].By != "Slumber nights",
			"found %+v, %+v and %+v", db.Status.ScheduledStops, app.Status.ScheduledStops, shop.Annotations)
	})
	members.RemoveKind(t.Context(), deployments)
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), s))
	testenv.Eventually(t, "a deleted Slumber removes its annotation, although Deployments cannot be stopped any more", func() error {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(shop), shop)
		return testenv.ErrorIf(err != nil || len(fieldswitch.ReadSwitch(shop).Scheduled) > 0, "found %v: %v", shop.Annotations, err)
	})
}

// memberReader counts lists of whole objects of a namespace from the API server, and may fail them.
type memberReader struct {
	client.Reader
	namespace  string
	isRefusing atomic.Bool
	whole      atomic.Int64
}

// List implements client.Reader.
func (r *memberReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	_, isWhole := list.(*unstructured.UnstructuredList)
	if in := (&client.ListOptions{}).ApplyOptions(options).Namespace; isWhole && in == r.namespace { // Lists of other tests do not count.
		r.whole.Add(1)
		if r.isRefusing.Load() {
			return k8serrors.NewInternalError(errors.New("conversion webhook for example.com failed: connection refused"))
		}
	}
	return r.Reader.List(ctx, list, options...)
}

// TestUnlistableKindDoesNotDelayOthers has a kind whose conversion webhook does not answer. One Slumber selects the
// kind, and another Slumber does not.
func TestUnlistableKindDoesNotDelayOthers(t *testing.T) {
	env := shared.Get(t)
	namespace := env.CreateNamespace(t)
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: namespace, Name: "app"})
	app.Spec.DesiredState = korifiv1alpha1.StartedState
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}}}
	shop := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}}
	buildSlumber := func(name string, kinds ...string) *torporv1alpha1.Slumber {
		s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}}
		for _, kind := range kinds {
			s.Spec.Waves = append(s.Spec.Waves, torporv1alpha1.SlumberWave{Name: strings.ToLower(kind), Targets: []torporv1alpha1.SlumberTarget{{Kind: kind}}})
		}
		return s
	}
	apps, both := buildSlumber("apps", "CFApp"), buildSlumber("both", "CFApp", "Deployment")
	env.ExpectCreated(t, app, shop, apps)
	deployments, reader, members := kinds.ListWorkloads()[0], &memberReader{Reader: env.Client, namespace: namespace}, &MemberKinds{}
	reader.isRefusing.Store(true)
	members.AddKind(t.Context(), deployments, reader)
	now := clocktesting.NewFakePassiveClock(beforeNight().Add(2 * time.Hour))
	defer testenv.StartManager(t, env, Controller{Clock: now, Metrics: NewMetrics(), Members: members}.SetupWithManager)()
	env.WaitFor(t, "the Slumber that selects only apps stops the app", app, func() error {
		return testenv.ErrorIf(len(app.Status.ScheduledStops) != 1, "found %+v", app.Status.ScheduledStops)
	})
	members.ObjectChanged(t.Context(), deployments, shop)
	testenv.ExpectEqual(t, "lists of Deployments for a Slumber that selects none", int64(0), reader.whole.Load())

	env.ExpectCreated(t, both)
	env.WaitFor(t, "the other Slumber stops the app, too", app, func() error {
		return testenv.ErrorIf(len(app.Status.ScheduledStops) != 2, "found %+v", app.Status.ScheduledStops)
	})
	stalled := func() metav1.Condition {
		if c := meta.FindStatusCondition(both.Status.Conditions, torporv1alpha1.SlumberStalledCondition); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	env.WaitFor(t, "the Slumber names the kind", both, func() error {
		c := stalled()
		return testenv.ErrorIf(c.Reason != torporv1alpha1.SlumberKindUnreadableReason || !strings.Contains(c.Message, "Deployment.apps (InternalError)"), "found %+v", c)
	})
	reader.isRefusing.Store(false)
	members.ObjectChanged(t.Context(), deployments, shop)
	env.WaitFor(t, "the Deployment is a member", both, func() error {
		return testenv.ErrorIf(stalled().Reason != torporv1alpha1.SlumberAsExpectedReason || both.Status.Members != 2, "found %+v", both.Status)
	})
}
