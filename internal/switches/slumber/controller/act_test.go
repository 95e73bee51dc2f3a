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

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// slowAPI rejects the writes of some objects immediately, and accepts those of all others after a delay.
type slowAPI struct {
	client.Client
	refuses map[string]error
	// ofStatus is the error of each write of a status; nil accepts it like any other write.
	ofStatus error
	mu       sync.Mutex
	written  []string
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
	if s.api.ofStatus != nil {
		return s.api.ofStatus
	}
	return s.api.Apply(ctx, applied)
}

// stopAll returns an observation of members of a kind that are awake, and the plan to stop them.
func stopAll(kind kinds.Kind, names ...string) (*observation, slumber.Plan) {
	now := beforeNight()
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{Waves: []torporv1alpha1.SlumberWave{{Name: "all"}}}}
	seen := &observation{Observed: slumber.Observed{Now: now, Slumber: s, Waves: make([][]slumber.Member, 1)}, waves: make([][]memberObject, 1)}
	plan := slumber.Plan{Wishes: make([][]slumber.MemberWish, 1)}
	plan.Status.Waves = []torporv1alpha1.SlumberWaveStatus{{Name: "all", ShouldSleep: true, Since: new(metav1.NewTime(now))}}
	for _, name := range names {
		o := &unstructured.Unstructured{}
		o.SetName(name)
		seen.Waves[0] = append(seen.Waves[0], slumber.Member{Name: kind.GVK().Kind + " " + name})
		seen.waves[0] = append(seen.waves[0], memberObject{o, kind})
		plan.Wishes[0] = append(plan.Wishes[0], slumber.MemberWish{Verb: slumber.Stop})
	}
	return seen, plan
}

// TestRefusedMembersDoNotPreventOtherWrites has an API server that rejects the writes of two members. The other members
// are written, and the error names both rejected members in a stable order.
func TestRefusedMembersDoNotPreventOtherWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &slowAPI{refuses: map[string]error{"d": errors.New("forbidden for d"), "b": errors.New("forbidden for b")}}
		seen, plan := stopAll(kinds.ListWorkloads()[0], "d", "c", "b", "a")
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

// TestRefusalsAreReportedNextToAStaleMember has one member for which the cache is stale. A stale cache alone is not
// reported, and does not hide a rejected write.
func TestRefusalsAreReportedNextToAStaleMember(t *testing.T) {
	refusal, stale := errors.New("forbidden"), fmt.Errorf("%w: gone", reconcile.ErrStale)
	for what, row := range map[string]struct {
		refuses map[string]error
		isStale bool
	}{
		"a stale member: the error is ErrStale":                          {map[string]error{"a": stale}, true},
		"a rejected and a stale member: the error is only the rejection": {map[string]error{"a": stale, "b": refusal}, false},
	} {
		seen, plan := stopAll(kinds.ListWorkloads()[0], "a", "b")
		synctest.Test(t, func(t *testing.T) {
			err := Controller{client: &slowAPI{refuses: row.refuses}}.act(t.Context(), seen, plan)
			if err == nil || errors.Is(err, reconcile.ErrStale) != row.isStale {
				t.Errorf("%s: expected an error of a stale cache: %t, found %v", what, row.isStale, err)
			}
		})
	}
}

// TestManyRefusalsAreCut has more rejected writes than a condition lists.
func TestManyRefusalsAreCut(t *testing.T) {
	api := &slowAPI{refuses: map[string]error{}}
	names := strings.Split("abcdefgh", "")
	for _, name := range names {
		api.refuses[name] = errors.New("forbidden")
	}
	seen, plan := stopAll(kinds.ListWorkloads()[0], names...)
	err := Controller{client: api}.act(t.Context(), seen, plan)
	if err == nil || !strings.HasPrefix(err.Error(), "apply to Deployment a: ") || !strings.HasSuffix(err.Error(), "apply to Deployment e: forbidden; and 3 more") {
		t.Errorf("expected five refusals and how many more there are, found %v", err)
	}
}

// TestMembersAreAnnotatedUnderEverySchema has an API server whose schema lacks status.scheduledStops, and one that
// rejects the status write.
func TestMembersAreAnnotatedUnderEverySchema(t *testing.T) {
	for what, row := range map[string]struct {
		ofStatus error
		want     string
	}{
		"the schema lacks status.scheduledStops: no error": {fmt.Errorf("apply: .status.scheduledStops: %s", fieldUnknown), "<nil>"},
		"the API server rejects the status: an error":      {errors.New("forbidden"), "write status.scheduledStops: apply the status of ClusterDeployment a: forbidden"},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &slowAPI{ofStatus: row.ofStatus}
			seen, plan := stopAll(kinds.ListOwn()[0], "a")
			err := Controller{client: api}.act(t.Context(), seen, plan)
			if fmt.Sprint(err) != row.want || !slices.Equal(api.written, []string{"a"}) {
				t.Errorf("%s: expected an annotation of a and the error %s, found %q and %v", what, row.want, api.written, err)
			}
		})
	}
}

// TestPartlyWrittenStopsAreWrittenAgain has, in each row, the stops in the status and in the annotation of a stopped
// member. A pass writes nothing only if the annotation holds the desired stops, and the status holds the same or
// none.
func TestPartlyWrittenStopsAreWrittenAgain(t *testing.T) {
	seen, plan := stopAll(kinds.ListOwn()[0], "a")
	wanted := listWrites(seen, plan)[0].stops
	another := *wanted.DeepCopy()
	another.Stops[0].Reason = "another reason"
	for what, row := range map[string]struct {
		status, annotation *torporv1alpha1.ScheduledStop
		isWritten          bool
	}{
		"stops that are stored nowhere are written":                            {nil, nil, true},
		"desired stops in the status alone are written again":                  {&wanted, nil, true},
		"desired stops in the annotation alone are not written again":          {nil, &wanted, false}, // As if the schema drops the status field.
		"desired stops in the status and the annotation are not written again": {&wanted, &wanted, false},
		"stops with an older reason in the annotation are written again":       {&wanted, &another, true},
		"stops with an older reason in the status are written again":           {&another, &wanted, true},
		"stops with an older reason in the annotation alone are written again": {nil, &another, true},
	} {
		cd := &hivev1.ClusterDeployment{}
		if row.status != nil {
			cd.Status.ScheduledStops = []torporv1alpha1.ScheduledStop{*row.status}
		}
		if row.annotation != nil {
			name, value, err := stoprecord.ScheduledAnnotation(*row.annotation, "nights")
			if err != nil {
				t.Fatal(err)
			}
			cd.Annotations = map[string]string{name: value}
		}
		member := slumber.ReadMember("nights", kinds.ListOwn()[0], cd, seen.Now)
		seen.Waves[0], seen.waves[0] = []slumber.Member{member}, []memberObject{{cd, kinds.ListOwn()[0]}}
		writes := listWrites(seen, plan)
		if (len(writes) == 1) != row.isWritten || row.isWritten && !equality.Semantic.DeepEqual(writes[0].stops, wanted) {
			t.Errorf("%s: expected a write: %t, found %+v", what, row.isWritten, writes)
		}
	}
}

// TestASelectorThatCannotBeReadIsObserved expects no error from the observation: the decision reports the selector.
func TestASelectorThatCannotBeReadIsObserved(t *testing.T) {
	s := &torporv1alpha1.Slumber{Spec: torporv1alpha1.SlumberSpec{Waves: []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{
		Kind: "ClusterDeployment", Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}},
	}}}}}}
	seen, err := Controller{client: clusterLister{}, Clock: clocktesting.NewFakePassiveClock(beforeNight())}.observe(t.Context(), s, nil)
	if err != nil || len(seen.Waves[0]) != 0 {
		t.Errorf("expected no members and no error, found %+v and %v", seen, err)
	}
}

// clusterLister lists one ClusterDeployment, and no other objects.
type clusterLister struct{ client.Client }

// List implements client.Reader.
func (clusterLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if clusters, isOfKind := list.(*hivev1.ClusterDeploymentList); isOfKind {
		clusters.Items = make([]hivev1.ClusterDeployment, 1)
	}
	return nil
}
