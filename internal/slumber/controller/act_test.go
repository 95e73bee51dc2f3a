// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/slumber"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

// slowAPI refuses the writes of some objects at once, and takes those of others after a while.
type slowAPI struct {
	client.Client
	refuses map[string]error
	mu      sync.Mutex
	written []string
}

// Apply implements client.Writer.
func (s *slowAPI) Apply(ctx context.Context, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	named, isNamed := applied.(interface{ GetName() string })
	if !isNamed {
		return fmt.Errorf("expected an object with a name, found %T", applied)
	}
	if refused := s.refuses[named.GetName()]; refused != nil {
		return refused
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = append(s.written, named.GetName())
	return nil
}

// Status implements client.StatusClient.
func (s *slowAPI) Status() client.SubResourceWriter { return statusOfSlowAPI{api: s} }

type statusOfSlowAPI struct {
	client.SubResourceWriter
	api *slowAPI
}

// Apply implements client.SubResourceWriter.
func (s statusOfSlowAPI) Apply(ctx context.Context, applied runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	return s.api.Apply(ctx, applied)
}

// stopAll returns what a Slumber has observed of members of a kind that are awake, and the plan to stop them.
func stopAll(kind stoppable.Kind, names ...string) (*observation, slumber.Plan) {
	now := beforeNight()
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{Waves: []torporv1alpha1.SlumberWave{{Name: "all"}}}}
	seen := &observation{Observed: slumber.Observed{Now: now, Slumber: s, Waves: make([][]slumber.Member, 1)}, waves: make([][]memberObject, 1)}
	plan := slumber.Plan{Wishes: make([][]slumber.MemberWish, 1)}
	plan.Status.Waves = []torporv1alpha1.SlumberWaveStatus{{Name: "all", ShouldSleep: true, Since: new(metav1.NewTime(now))}}
	for _, name := range names {
		o := &unstructured.Unstructured{}
		o.SetName(name)
		seen.Waves[0] = append(seen.Waves[0], slumber.Member{Name: kind.GVK.Kind + " " + name})
		seen.waves[0] = append(seen.waves[0], memberObject{o, kind})
		plan.Wishes[0] = append(plan.Wishes[0], slumber.MemberWish{Verb: slumber.Stop})
	}
	return seen, plan
}

// TestARefusedMemberKeepsNoOtherFromBeingWritten has an admission that refuses two members: the others are written all the same, and the message names
// both in an order that stays.
func TestARefusedMemberKeepsNoOtherFromBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &slowAPI{refuses: map[string]error{"d": errors.New("forbidden for d"), "b": errors.New("forbidden for b")}}
		seen, plan := stopAll(stoppable.ListWorkloads()[0], "d", "c", "b", "a")
		err := Controller{client: api}.act(t.Context(), seen, plan)
		if slices.Sort(api.written); !slices.Equal(api.written, []string{"a", "c"}) {
			t.Errorf("expected a and c to be written, found %q", api.written)
		}
		const want = "apply to Deployment b: forbidden for b; apply to Deployment d: forbidden for d"
		if err == nil || err.Error() != want {
			t.Errorf("expected %q, found %v", want, err)
		}
	})
}

// TestARefusalIsToldBesideAStaleMember has one member that the cache is behind with: that alone is not told, and hides no refusal.
func TestARefusalIsToldBesideAStaleMember(t *testing.T) {
	refusal, stale := errors.New("forbidden"), fmt.Errorf("%w: gone", reconcile.ErrStale)
	for what, row := range map[string]struct {
		refuses map[string]error
		isStale bool
	}{
		"one is stale":                     {map[string]error{"a": stale}, true},
		"one is refused and another stale": {map[string]error{"a": stale, "b": refusal}, false},
	} {
		seen, plan := stopAll(stoppable.ListWorkloads()[0], "a", "b")
		synctest.Test(t, func(t *testing.T) {
			err := Controller{client: &slowAPI{refuses: row.refuses}}.act(t.Context(), seen, plan)
			if err == nil || errors.Is(err, reconcile.ErrStale) != row.isStale {
				t.Errorf("%s: expected an error of a stale cache: %t, found %v", what, row.isStale, err)
			}
		})
	}
}

// TestManyRefusalsAreCut has more of them than a condition should hold.
func TestManyRefusalsAreCut(t *testing.T) {
	api := &slowAPI{refuses: map[string]error{}}
	names := strings.Split("abcdefgh", "")
	for _, name := range names {
		api.refuses[name] = errors.New("forbidden")
	}
	seen, plan := stopAll(stoppable.ListWorkloads()[0], names...)
	err := Controller{client: api}.act(t.Context(), seen, plan)
	if err == nil || !strings.HasPrefix(err.Error(), "apply to Deployment a: ") || !strings.HasSuffix(err.Error(), "apply to Deployment e: forbidden; and 3 more") {
		t.Errorf("expected five refusals and how many more there are, found %v", err)
	}
}

// TestMembersWhoseSchemaLacksTheFieldAreNamedInOrder has a cache that lists them in any order.
func TestMembersWhoseSchemaLacksTheFieldAreNamedInOrder(t *testing.T) {
	unknown := errors.New(fieldUnknown)
	for _, names := range [][]string{{"b", "a"}, {"a", "b"}} {
		seen, plan := stopAll(stoppable.ListKinds()[0], names...)
		err := Controller{client: &slowAPI{refuses: map[string]error{"a": unknown, "b": unknown}}}.act(t.Context(), seen, plan)
		const want = "ClusterDeployment a, ClusterDeployment b"
		if refused, isRefused := errors.AsType[*reconcile.RefusedError](err); !isRefused || refused.Message != want {
			t.Errorf("%q: expected %q, found %v", names, want, err)
		}
	}
}

// TestASelectorThatCannotBeReadIsObserved leaves it to the decision to tell of it.
func TestASelectorThatCannotBeReadIsObserved(t *testing.T) {
	s := &torporv1alpha1.Slumber{Spec: torporv1alpha1.SlumberSpec{Waves: []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{
		Kind: "ClusterDeployment", Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}},
	}}}}}}
	seen, err := Controller{client: clusterLister{}, Clock: clocktesting.NewFakePassiveClock(beforeNight())}.observe(t.Context(), s)
	if err != nil || len(seen.Waves[0]) != 0 {
		t.Errorf("expected no members and no error, found %+v and %v", seen, err)
	}
}

// clusterLister knows one cluster, and nothing else.
type clusterLister struct{ client.Client }

// List implements client.Reader.
func (clusterLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if clusters, isOfKind := list.(*hivev1.ClusterDeploymentList); isOfKind {
		clusters.Items = make([]hivev1.ClusterDeployment, 1)
	}
	return nil
}
