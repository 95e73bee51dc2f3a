// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const system = "torpor-system"

// testManager is a manager that leads parts.
type testManager struct {
	*Election

	// end ends the manager, and waits until it has ended. failure is the error with which the manager has ended.
	end     func()
	failure atomic.Pointer[error]
}

// start runs a manager of a Deployment.
func start(t *testing.T, hub client.Client, deployment string, namespaces []string, parts map[string][]string) *testManager {
	t.Helper()
	m := &testManager{Election: New(Options{
		Reader: hub, Client: hub, Recorder: events.NewFakeRecorder(1000), Namespace: system, Identity: deployment + "-7d4b9c8f6d-x2k9z_" + string(uuid.NewUUID()),
		Scope: lease.Scope{Namespaces: namespaces, Deployment: deployment}, Clock: clock.RealClock{}, Log: testr.New(t).WithName(deployment),
	}, parts)}
	m.end = testenv.RunInBackground(t, deployment, func(ctx context.Context) error {
		err := m.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		m.failure.Store(&err)
		return nil
	})
	return m
}

func (m *testManager) waitUntilActing(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		m.waitFor(t, part, conditional.True, leadsReason, "")
	}
	testenv.ExpectNoError(t, m.CheckScopes(nil))
}

func (m *testManager) waitFor(t *testing.T, part string, state conditional.State, reason, words string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s: the part %s is %s", m.Scope.Deployment, part, reason), func() error {
		s := m.Part(part).Status()
		return testenv.ErrorIf(s.State != state || s.Reason != reason || !strings.Contains(s.Message, words), "expected %s, found %+v", words, s)
	})
}

func (m *testManager) expectUnready(t *testing.T, words string) {
	t.Helper()
	if err := m.CheckScopes(nil); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: expected an unready manager and %q, found %v", m.Scope.Deployment, words, err)
	}
}

func part(name string) map[string][]string { return map[string][]string{name: {name}} }

// TestManagersLeadParts runs managers with different parts, replicas of one Deployment, and managers with different and
// with common namespaces.
func TestManagersLeadParts(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	clusters := start(t, hub.Client, "clusters", nil, map[string][]string{"clusters": {"hibernation", "sync"}})
	clusters.waitUntilActing(t, "clusters")
	a := start(t, hub.Client, "a", []string{"a", "a2"}, part("apps"))
	b := start(t, hub.Client, "b", []string{"b"}, part("apps"))
	a.waitUntilActing(t, "apps")
	b.waitUntilActing(t, "apps")

	t.Log("A replica of the same Deployment waits, and is ready. So does one of a rollout with other namespaces.")
	replica := start(t, hub.Client, "a", []string{"a2", "a"}, part("apps"))
	replica.waitFor(t, "apps", conditional.False, conditional.ElsewhereReason, "a leads the part apps")
	rollout := start(t, hub.Client, "b", nil, part("apps"))
	rollout.waitFor(t, "apps", conditional.False, waitingReason, "leads the part apps in common namespaces")
	testenv.ExpectNoError(t, errors.Join(replica.CheckScopes(nil), replica.CheckScopes(nil)))

	t.Log("A manager with common namespaces waits, and names the other one. So does one with other controllers of a part.")
	common := start(t, hub.Client, "common", []string{"a", "c"}, map[string][]string{"apps": {"apps"}, "databases": {"backup"}})
	common.waitFor(t, "databases", conditional.True, leadsReason, "")
	common.waitFor(t, "apps", conditional.False, waitingReason, "a leads the part apps in common namespaces")
	common.expectUnready(t, "found that a leads with the controllers apps in the namespaces a,a2, and that this replica of common waits with the controllers apps in the namespaces a,c")
	split := start(t, hub.Client, "split", nil, map[string][]string{"clusters": {"machinepools"}})
	split.waitFor(t, "clusters", conditional.False, waitingReason, "clusters leads the part clusters")
	split.expectUnready(t, "found that clusters leads with the controllers hibernation,sync in all namespaces, and that this replica of split waits with the controllers machinepools")

	t.Log("The Leases record what their holders lead.")
	testenv.Eventually(t, "all annotations", func() error {
		var all coordinationv1.LeaseList
		testenv.ExpectNoError(t, hub.Client.List(t.Context(), &all, client.InNamespace(system), client.HasLabels{torporv1alpha1.PartLabel}))
		var found []string
		for _, l := range lease.ReadLeaders(all.Items, time.Now()) {
			found = append(found, fmt.Sprintf("%s %s %t %s", l.Part, l.Name(), l.Acts, l.DescribeScope()))
		}
		slices.Sort(found) // The hashes of namespaces have no order.
		want := []string{
			"apps a true the controllers apps in the namespaces a,a2", "apps b true the controllers apps in the namespaces b",
			"clusters clusters true the controllers hibernation,sync in all namespaces", "databases common true the controllers backup in the namespaces a,c",
		}
		return testenv.ErrorIf(strings.Join(found, "\n") != strings.Join(want, "\n"), "expected:\n%s\nfound:\n%s", strings.Join(want, "\n"), strings.Join(found, "\n"))
	})

	t.Log("The first manager ends. One of its replica and the manager with common namespaces acts within seconds.")
	a.end()
	replica.end()
	common.waitUntilActing(t, "apps", "databases")
	b.end()
	rollout.waitFor(t, "apps", conditional.False, waitingReason, "common leads the part apps in common namespaces")
	rollout.expectUnready(t, "remove the common namespaces")
}

// TestEarlierReleaseIsRespected runs managers next to a manager of an earlier release, which leads all controllers by
// one Lease.
func TestEarlierReleaseIsRespected(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	older := &Election{Options: Options{Reader: hub.Client, Client: hub.Client, Recorder: events.NewFakeRecorder(1000), Namespace: system, Log: testr.New(t)}}
	lead := func(identity string) (stop func(), leads func() bool) {
		var isLeading atomic.Bool
		l := &lock{election: older, name: olderName, identity: identity}
		stop = testenv.RunInBackground(t, identity, func(ctx context.Context) error {
			return l.hold(ctx, true, func(context.Context) { isLeading.Store(true) })
		})
		return stop, isLeading.Load
	}
	stop, leads := lead("older_1")
	testenv.Eventually(t, "the earlier release leads", func() error { return testenv.ErrorIf(!leads(), "expected a leader") })
	first := start(t, hub.Client, "first", nil, map[string][]string{"apps": {"lrp"}, "clusters": {"sync"}})
	for _, name := range []string{"apps", "clusters"} {
		first.waitFor(t, name, conditional.False, conditional.ElsewhereReason, "a manager of an earlier release, older, leads all controllers")
	}
	testenv.ExpectNoError(t, first.CheckScopes(nil))

	t.Log("The manager of the earlier release ends and releases its Lease.")
	stop()
	first.waitUntilActing(t, "apps", "clusters")
	second := start(t, hub.Client, "second", nil, part("databases"))
	second.waitUntilActing(t, "databases")

	t.Log("A manager of the earlier release waits as long as one manager of this release acts.")
	stop, leads = lead("older_2")
	first.end()
	testenv.Consistently(t, leaseDuration+2*retryPeriod, "the earlier release waits", func() error { return testenv.ErrorIf(leads(), "expected no leader of the earlier release") })
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: olderName}}
	testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	if *held.Spec.HolderIdentity != sharedIdentity {
		t.Errorf("expected the shared identity, found %s", *held.Spec.HolderIdentity)
	}
	second.end()
	testenv.Eventually(t, "the earlier release leads again", func() error { return testenv.ErrorIf(!leads(), "expected a leader") })
	stop()
}

var errBroken = errors.New("the permission was revoked")

// brokenClient rejects all updates and patches once it is broken.
type brokenClient struct {
	client.Client

	isBroken atomic.Bool
}

func (c *brokenClient) Update(ctx context.Context, obj client.Object, o ...client.UpdateOption) error {
	if c.isBroken.Load() {
		return k8serrors.NewForbidden(schema.GroupResource{Resource: "leases"}, obj.GetName(), errBroken)
	}
	return c.Client.Update(ctx, obj, o...)
}

func (c *brokenClient) Patch(ctx context.Context, obj client.Object, p client.Patch, o ...client.PatchOption) error {
	if c.isBroken.Load() {
		return k8serrors.NewForbidden(schema.GroupResource{Resource: "leases"}, obj.GetName(), errBroken)
	}
	return c.Client.Patch(ctx, obj, p, o...)
}

// TestLostLeaseEndsTheManager lets the renewals of a manager fail. The manager ends with an error and does not release
// its Lease. Another manager acts once the Lease has expired.
func TestLostLeaseEndsTheManager(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	broken := &brokenClient{Client: hub.Client}
	first := start(t, broken, "first", nil, part("apps"))
	first.waitUntilActing(t, "apps")
	second := start(t, hub.Client, "second", []string{"a"}, part("apps"))
	second.waitFor(t, "apps", conditional.False, waitingReason, "first leads the part apps")
	broken.isBroken.Store(true)
	testenv.Eventually(t, "the first manager ends with an error", func() error {
		err := first.failure.Load()
		return testenv.ErrorIf(err == nil || *err == nil || !strings.Contains((*err).Error(), "was not renewed within "+renewDeadline.String()), "expected an error, found %v", err)
	})
	if second.Part("apps").isActing() {
		t.Error("expected the second manager to wait for the end of the Lease")
	}
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-apps"}}
	testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	if *held.Spec.HolderIdentity != first.Identity {
		t.Errorf("expected a Lease that was not released, found %+v", held.Spec)
	}
	second.waitUntilActing(t, "apps")
}
