// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, func(t testing.TB) *testenv.Environment { return testenv.StartAPIServer(t) })
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

// observed is an Observer that records its notifications.
type observed struct {
	mu      sync.Mutex
	kinds   map[string]bool
	changed map[string]int
}

func (o *observed) AddKind(_ context.Context, kind kinds.Kind, _ client.Reader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kinds[kind.GVK().Kind] = true
}

func (o *observed) RemoveKind(_ context.Context, kind kinds.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.kinds, kind.GVK().Kind)
}

func (o *observed) ObjectChanged(_ context.Context, _ kinds.Kind, obj client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed[obj.GetName()]++
}

func (o *observed) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.kinds)
}

// ownDeployment is the name of the manager's Deployment.
const ownDeployment = "torpor-manager"

// story is a namespace with workloads, and controllers with only the permissions of their feature.
type story struct {
	*testenv.Environment
	namespace string
	observer  *observed
	metrics   *Metrics
	// clock is the clock of the controllers.
	clock clock.PassiveClock
	stop  func()
	// lists counts the list requests of the controllers' client to the API server.
	lists atomic.Int64
	// read has the names of the objects that the controllers read completely, not only their metadata.
	read sync.Map
}

func newStory(t *testing.T) *story {
	t.Helper()
	env := shared.Get(t)
	s := &story{Environment: env, namespace: env.CreateNamespace(t), observer: &observed{kinds: map[string]bool{}, changed: map[string]int{}}, metrics: NewMetrics(), clock: clock.RealClock{}}
	s.start(t)
	return s
}

func (s *story) start(t *testing.T) {
	t.Helper()
	limited := *s.Environment
	limited.Config = s.ImpersonateUser(s.grantRights(t))
	s.stop = testenv.StartManager(t, &limited, func(mgr manager.Manager) error {
		for _, kind := range kinds.ListWorkloads() {
			if err := (Controller{
				Clock: s.clock, Kind: kind, Observer: s.observer, Metrics: s.metrics, Own: client.ObjectKey{Namespace: s.namespace, Name: ownDeployment},
			}).SetupWithManager(mgr); err != nil {
				return fmt.Errorf("set up: %w", err)
			}
		}
		return nil
	}, func(o *manager.Options) {
		o.NewClient = func(cfg *rest.Config, o client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(cfg, o)
			return interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				s.lists.Add(1)
				return c.List(ctx, list, opts...)
			}, Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, isWhole := obj.(*unstructured.Unstructured); isWhole {
					s.read.Store(name.Name, true)
				}
				return c.Get(ctx, name, obj, opts...)
			}}), err
		}
	})
}

// grantRights creates the ClusterRole of the feature, once for all tests.
func (s *story) grantRights(t *testing.T) string {
	t.Helper()
	const namespace = "default"
	s.ApplyFeatureRoles(t, namespace, "workloads")
	return "system:serviceaccount:" + namespace + ":torpor-manager"
}

func (s *story) create(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	testenv.ExpectNoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	u.SetNamespace(s.namespace)
	s.ExpectCreated(t, u)
	return u
}

func (s *story) patch(t *testing.T, u *unstructured.Unstructured, patch string) {
	t.Helper()
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("alice")))
}

// waitFor waits until the spec of an object is as expected and, depending on isKept, an annotation saves fields to
// restore or none.
func (s *story) waitFor(t *testing.T, what string, u *unstructured.Unstructured, isKept bool, holds func(spec map[string]any) bool) {
	t.Helper()
	s.WaitFor(t, what, u, func() error {
		spec, _, _ := unstructured.NestedMap(u.Object, "spec")
		found := fieldswitch.ReadSwitch(u)
		return testenv.ErrorIf(!holds(spec) || (len(found.Saved) > 0) != isKept, "found %v and %v", spec, u.GetAnnotations())
	})
}

func replicasAre(n int64) func(map[string]any) bool {
	return func(spec map[string]any) bool { return spec["replicas"] == n }
}

func deployment(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {replicas: 3, selector: {matchLabels: {app: %[1]s}},
  template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: a, image: example.com/a}]}}}}`, name)
}

// TestWorkloadsAreStoppedAndRestored has a user stop an object of each kind, restarts the manager, and has the user
// start the object: its spec is restored.
func TestWorkloadsAreStoppedAndRestored(t *testing.T) {
	s := newStory(t)
	for _, kind := range kinds.ListWorkloads() {
		example := testenv.ReadWorkload(t, kind.GVK().Kind, kind.Switch().Operations)
		u := example.Build(types.NamespacedName{Namespace: s.namespace, Name: example.Name})
		s.ExpectCreated(t, u)
		holds := func(value any) func(map[string]any) bool {
			return func(map[string]any) bool { return example.ReadSwitch(u) == value }
		}
		isStopped, isRunning := holds(example.Off), holds(example.On)
		before, _, _ := unstructured.NestedMap(u.Object, "spec")
		s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": "true", "torpor.dev/reason": "no budget"}}}`)
		s.waitFor(t, u.GetKind()+" is stopped", u, true, isStopped)
		s.WaitForEvent(t, s.namespace, fieldswitch.EventStopped, "The object is stopped; asked for by unknown (field manager alice): no budget")
		s.stop()
		s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": null}}}`)
		s.start(t)
		s.waitFor(t, u.GetKind()+" is restored", u, false, isRunning)
		after, _, _ := unstructured.NestedMap(u.Object, "spec")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: spec (-before +after):\n%s", u.GetKind(), diff)
		}
		if record := fieldswitch.ReadSwitch(u).Records; len(record) != 1 || record[0].Reason != "no budget" || record[0].EndedAt == nil {
			t.Errorf("%s: expected the record of one stop, found %+v", u.GetKind(), record)
		}
	}
	testenv.Eventually(t, "all kinds are announced", func() error {
		return testenv.ErrorIf(s.observer.count() != len(kinds.ListWorkloads()), "found %v", s.observer.kinds)
	})
	s.stop()
	if s.observer.count() != 0 || s.observer.changed["shop"] == 0 {
		t.Errorf("expected no kind any more, and changes that were reported, found %v and %v", s.observer.kinds, s.observer.changed)
	}
}

// TestASlumberAndOthersDecideAboutADeployment has a Slumber's annotation stop a Deployment, a user scale it, and
// autoscalers and owners that prevent a stop.
func TestASlumberAndOthersDecideAboutADeployment(t *testing.T) {
	s := newStory(t)
	defer s.stop()
	sleep := `{"metadata": {"annotations": {"slumber.torpor.dev/nights": "{\"slumber\": \"nights\", \"stops\": [{\"since\": \"2026-01-01T20:00:00Z\", \"by\": \"Slumber nights\", \"requested\": true}]}"}}}`
	wake := `{"metadata": {"annotations": {"slumber.torpor.dev/nights": null}}}`
	u := s.create(t, deployment("asleep"))
	s.patch(t, u, sleep)
	s.waitFor(t, "the Deployment sleeps", u, true, replicasAre(0))
	s.patch(t, u, wake)
	s.waitFor(t, "the Deployment wakes", u, false, replicasAre(3))

	t.Log("A user who scales the Deployment during the stop keeps it running, and is recorded.")
	s.patch(t, u, sleep)
	s.waitFor(t, "the Deployment sleeps again", u, true, replicasAre(0))
	s.patch(t, u, `{"spec": {"replicas": 5}}`)
	s.waitFor(t, "the Deployment is not changed", u, false, replicasAre(5))
	if found := fieldswitch.ReadSwitch(u); found.ResumedBy != "unknown (field manager alice)" {
		t.Errorf("expected who resumed it, found %+v", found)
	}
	s.WaitForEvent(t, s.namespace, fieldswitch.EventStartedByOthers, "found other values, set by unknown (field manager alice)")

	t.Log("Objects that KEDA scales from zero, objects with an owning controller, and the manager itself are not stopped.")
	scaled := s.create(t, deployment("scaled"))
	s.create(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: keda-hpa-scaled, ownerReferences: [{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: scaled, uid: u-1, controller: true}]},
  spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`)
	owned := s.create(t, strings.Replace(deployment("owned"), "name: owned}, spec", "name: owned, ownerReferences: [{apiVersion: example.com/v1, kind: Database, name: db, uid: u-2, controller: true}]}, spec", 1))
	own := s.create(t, deployment(ownDeployment))
	for u, why := range map[*unstructured.Unstructured]string{
		scaled: "the ScaledObject scaled of KEDA", owned: "Database db owns it", own: "the Deployment of this manager",
	} {
		s.patch(t, u, sleep)
		s.WaitFor(t, "the stop is refused", u, func() error {
			found := fieldswitch.ReadSwitch(u)
			replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
			return testenv.ErrorIf(!strings.Contains(found.Refused, why) || replicas != 3, "found %d and %q", replicas, found.Refused)
		})
	}
	s.WaitForEvent(t, s.namespace, fieldswitch.EventStopRefused, "Database db owns it")

	t.Log("An autoscaler with minReplicas above zero does not prevent a stop.")
	resting := s.create(t, deployment("resting"))
	s.create(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: resting},
  spec: {minReplicas: 2, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: resting}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`)
	s.patch(t, resting, sleep)
	s.waitFor(t, "the Deployment of that autoscaler sleeps, too", resting, true, replicasAre(0))
}

// TestRefusalsOfTheAPIServerAreReported has a policy that rejects Deployments without replicas, and a user who stops
// a Deployment.
func TestRefusalsOfTheAPIServerAreReported(t *testing.T) {
	s := newStory(t)
	defer s.stop()
	s.ExpectCreated(t, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "object.spec.replicas > 0", Message: "two replicas at least"}},
	}}, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: s.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace}}},
	}})
	u := s.create(t, deployment("kept"))
	testenv.Eventually(t, "the policy is in effect", func() error {
		err := s.Client.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 0}}`)), client.DryRunAll)
		return testenv.ErrorIf(err == nil, "the Deployment may have no replicas")
	})
	s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": "true"}}}`)
	s.WaitFor(t, "an annotation has the reason", u, func() error {
		found := fieldswitch.ReadSwitch(u)
		return testenv.ErrorIf(!strings.Contains(found.Refused, "two replicas at least") || len(found.Saved) > 0, "found %v", u.GetAnnotations())
	})
	s.WaitForEvent(t, s.namespace, fieldswitch.EventStopRefused, "two replicas at least")
	s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": null}}}`)
	s.WaitFor(t, "the refusal is removed", u, func() error {
		return testenv.ErrorIf(fieldswitch.ReadSwitch(u).Refused != "", "found %v", u.GetAnnotations())
	})
}

// TestObjectsWithoutASwitchAreNotRead has a Deployment that is changed and scaled, and one that is stopped, and
// starts the manager before and after the stop.
func TestObjectsWithoutASwitchAreNotRead(t *testing.T) {
	s := newStory(t)
	plain := s.create(t, deployment("plain"))
	s.create(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: plain},
  spec: {minReplicas: 2, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: plain}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`)
	stopped := s.create(t, deployment("stopped"))
	s.patch(t, plain, `{"metadata": {"annotations": {"example.com/team": "a"}}, "spec": {"replicas": 4}}`)
	s.patch(t, stopped, `{"metadata": {"annotations": {"torpor.dev/stopped": "true"}}}`)
	s.waitFor(t, "the Deployment is stopped", stopped, true, replicasAre(0))
	s.stop()
	s.start(t)
	s.patch(t, plain, `{"spec": {"replicas": 6}}`)
	s.patch(t, stopped, `{"metadata": {"annotations": {"torpor.dev/stopped": null}}}`)
	s.waitFor(t, "the Deployment is started", stopped, false, replicasAre(3))
	s.stop()
	_, isRead := s.read.Load("stopped")
	testenv.ExpectEqual(t, "the stopped Deployment is read", true, isRead)
	_, isRead = s.read.Load("plain")
	testenv.ExpectEqual(t, "the other Deployment is read", false, isRead)
}

// TestStopsThatEndWithoutAManagerAreRestored has a stop whose end time passes, and a Slumber's stop that expires, while
// no manager runs.
func TestStopsThatEndWithoutAManagerAreRestored(t *testing.T) {
	s := newStory(t)
	u := s.create(t, deployment("timed"))
	s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/stopped": "true", "torpor.dev/until": "2099-01-01T00:00:00Z"}}}`)
	s.waitFor(t, "the Deployment is stopped", u, true, replicasAre(0))
	const shown = `torpor_stop_until_timestamp_seconds{kind="Deployment",name="timed",part="replicas"} 4070908800`
	testenv.Eventually(t, "the metrics show its end", func() error {
		return testenv.ErrorIf(!slices.Contains(s.listMetrics(t), shown), "found %v", s.listMetrics(t))
	})
	asked := s.lists.Load()
	s.listMetrics(t)
	testenv.ExpectEqual(t, "lists that a scrape asks the API server for", asked, s.lists.Load())
	s.stop()
	if found := s.listMetrics(t); len(found) > 0 {
		t.Errorf("expected no metrics while nothing runs, found %v", found)
	}
	s.patch(t, u, `{"metadata": {"annotations": {"torpor.dev/until": "1s"}}}`)
	s.start(t)
	defer s.stop()
	s.waitFor(t, "the Deployment is back", u, false, replicasAre(3))
	found := fieldswitch.ReadSwitch(u)
	if _, isLeft := u.GetAnnotations()[torporv1alpha1.UntilAnnotation]; isLeft || fieldswitch.IsAsked(u) || found.Records[0].StartedBy != torporv1alpha1.UntilAnnotation {
		t.Errorf("expected the stop to be taken back, found %v", u.GetAnnotations())
	}
}

// listMetrics returns the series of the story's namespace, without the namespace label.
func (s *story) listMetrics(t *testing.T) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics)
	families, err := registry.Gather()
	testenv.ExpectNoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			mine := fmt.Sprintf("namespace=%q", s.namespace)
			value := m.GetGauge().GetValue()
			if counter := m.GetCounter(); counter != nil {
				value = counter.GetValue()
			}
			if slices.Contains(labels, mine) {
				labels = slices.DeleteFunc(labels, func(l string) bool { return l == mine })
				lines = append(lines, fmt.Sprintf("%s{%s} %d", family.GetName(), strings.Join(labels, ","), int64(value)))
			}
		}
	}
	return lines
}
