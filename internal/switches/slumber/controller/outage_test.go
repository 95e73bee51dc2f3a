// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	fieldswitchcontroller "github.com/torpor-dev/torpor/internal/switches/fieldswitch/controller"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// outageStory is a namespace with a member of every kind, one of which a user stops, and a Slumber that selects all
// of them. The test sets the time.
type outageStory struct {
	*testenv.Environment
	namespace string
	clock     *clocktesting.FakePassiveClock
	switched  []kinds.Kind
	slumber   *torporv1alpha1.Slumber
	members   map[string]client.Object
}

// fluxExample is the StopAdapter of the kind whose object Flux syncs.
const fluxExample = "flux-kustomization"

func newOutageStory(t *testing.T) *outageStory {
	t.Helper()
	env := shared.Get(t)
	env.InstallCRDs(t, "../../stopadapter/controller/testdata/crds.yaml")
	s := &outageStory{Environment: env, namespace: env.CreateNamespace(t), clock: clocktesting.NewFakePassiveClock(beforeNight()), members: map[string]client.Object{}}
	kustomizations, err := stopadapter.NewKind(testenv.ReadStopAdapter(t, fluxExample))
	testenv.ExpectNoError(t, err)
	s.switched = append(kinds.ListWorkloads(), kustomizations)
	name := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: s.namespace, Name: name}
	}
	db, app := testenv.BuildMySQLCluster(t, name("db"), 1), testenv.BuildCFApp(name("app"))
	app.Spec.DesiredState = korifiv1alpha1.StartedState
	s.members["cluster"], s.members["db"], s.members["app"] = testenv.BuildClusterDeployment(name("cluster"), "none", "none"), db, app
	for _, kind := range kinds.ListWorkloads() {
		example := testenv.ReadWorkload(t, kind.GVK().Kind, kind.Switch().Operations)
		s.members[example.Name] = example.Build(name(example.Name))
		if s.members["kept"] == nil {
			s.members["kept"] = example.Build(name("kept"))
		}
	}
	for _, o := range testenv.ListForeignObjects() {
		if o.Example == fluxExample {
			s.members["synced"] = o.Build(t, name("synced"))
		}
	}
	for _, o := range s.members {
		env.ExpectCreated(t, o)
	}
	testenv.ExpectNoError(t, env.Client.Status().Patch(t.Context(), db, client.RawPatch(types.MergePatchType, []byte(`{"status": {"instances": [{"ordinal": 0, "role": "primary"}]}}`))))
	s.slumber = &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{
		Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}}, Waves: []torporv1alpha1.SlumberWave{{Name: "all"}},
	}}
	for _, kind := range append(kinds.ListOwn(), s.switched...) {
		s.slumber.Spec.Waves[0].Targets = append(s.slumber.Spec.Waves[0].Targets, torporv1alpha1.SlumberTarget{APIGroup: kind.GVK().Group, Kind: kind.GVK().Kind})
	}
	env.ExpectCreated(t, s.slumber)
	return s
}

// startManager runs the controllers of Slumbers and of switches until stop is called.
func (s *outageStory) startManager(t *testing.T) (stop func()) {
	t.Helper()
	members := &MemberKinds{}
	return testenv.StartManager(t, s.Environment, func(mgr manager.Manager) error {
		err := Controller{Clock: s.clock, Metrics: NewMetrics(), Members: members}.SetupWithManager(mgr)
		for _, kind := range s.switched {
			err = errors.Join(err, fieldswitchcontroller.Controller{Clock: s.clock, Kind: kind, Observer: members}.SetupWithManager(mgr))
		}
		return err
	})
}

// readOff returns the names of the stopped members, sorted, and how many stops of the Slumber each member records.
func (s *outageStory) readOff(t *testing.T) (off []string, stops map[string]int, err error) {
	t.Helper()
	stops = map[string]int{}
	for name, o := range s.members {
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		for _, kind := range append(kinds.ListOwn(), s.switched...) {
			if kind.GVK().Kind != kindOf(o) {
				continue
			}
			object, _ := o.(kinds.Object)
			for _, stop := range kind.ReadState(object, s.clock.Now()).ScheduledStops {
				stops[name] += len(stop.Stops)
				if kind.Switch() == nil && stop.Stops[0].EndedAt == nil {
					off = append(off, name)
				}
			}
		}
		if u, ok := o.(*unstructured.Unstructured); ok && fieldswitch.ReadSwitch(u).IsKept(u) {
			off = append(off, name)
		}
	}
	slices.Sort(off)
	return off, stops, nil
}

func kindOf(o client.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	_, name, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
	return name
}

// waitFor waits until exactly these members are stopped, and each member that the Slumber has ever stopped records
// the given number of stops.
func (s *outageStory) waitFor(t *testing.T, what string, stops int, want ...string) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		off, found, err := s.readOff(t)
		if err != nil {
			return err
		}
		for name, n := range found {
			if n != stops {
				return fmt.Errorf("expected %d stops of %s, found %d", stops, name, n)
			}
		}
		return testenv.ErrorIf(fmt.Sprint(off) != fmt.Sprint(want) || len(found) != len(s.members), "expected %v to be stopped, found %v; stops %v", want, off, found)
	})
}

// describeSpecs returns the spec and the resource version of each member.
func (s *outageStory) describeSpecs(t *testing.T) (specs map[string]any, versions map[string]string) {
	t.Helper()
	specs, versions = map[string]any{}, map[string]string{}
	for name, o := range s.members {
		testenv.ExpectNoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		specs[name], versions[name] = o.GetGeneration(), o.GetResourceVersion()
		if u, ok := o.(*unstructured.Unstructured); ok {
			specs[name] = u.DeepCopy().Object["spec"]
		}
	}
	return specs, versions
}

// TestOutageDuringAWindowRunsEachActionOnce has members of every kind. No manager runs when the first window begins,
// when this window ends, and during another whole window. The result is the same as without the outage, each action
// happens once, and a member that a user stopped during the outage remains stopped.
func TestOutageDuringAWindowRunsEachActionOnce(t *testing.T) {
	s := newOutageStory(t)
	before, _ := s.describeSpecs(t)
	day := 24 * time.Hour
	stop := s.startManager(t)
	s.WaitFor(t, "all members are counted", s.slumber, func() error {
		return testenv.ErrorIf(s.slumber.Status.Members != int32(len(s.members)) || s.slumber.Status.State != torporv1alpha1.SlumberAwake, "found %+v", s.slumber.Status)
	})
	stop()

	s.clock.SetTime(beforeNight().Add(3 * time.Hour))
	alice := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"torpor.dev/stopped": "true"}}}`))
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.members["kept"], alice))
	stop = s.startManager(t)
	s.waitFor(t, "all members are stopped after an outage in the evening", 1, slices.Sorted(maps.Keys(s.members))...)
	stop()

	s.clock.SetTime(beforeNight().Add(17 * time.Hour))
	stop = s.startManager(t)
	s.waitFor(t, "all members except the user's are started after an outage in the morning", 1, "kept")
	stop()
	after, versions := s.describeSpecs(t)
	delete(before, "kept")
	delete(after, "kept")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("expected every spec as it was, and none of computed desires written (-before +after):\n%s", diff)
	}

	s.clock.SetTime(beforeNight().Add(17*time.Hour + day))
	stop = s.startManager(t)
	s.WaitFor(t, "a pass has run after an outage of a whole night", s.slumber, func() error {
		next := s.slumber.Status.NextTransitions
		return testenv.ErrorIf(len(next) == 0 || !next[0].At.After(s.clock.Now()), "found %+v", next)
	})
	s.waitFor(t, "nothing more is stopped", 1, "kept")
	stop()
	if _, found := s.describeSpecs(t); !cmp.Equal(versions, found) {
		t.Errorf("expected nothing to be written because of an unseen window (-before +after):\n%s", cmp.Diff(versions, found))
	}
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.slumber, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))))
}
