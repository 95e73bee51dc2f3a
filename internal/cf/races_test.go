// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// Race c: restarts that arrive while one is under way are each counted, and one set of Pods comes out.
func (s *stage) testManyRequests(t *testing.T) {
	const times = 10
	a := s.newApp(t, options{instances: 1, command: "HOLLOW_STOP=300ms ./app"})
	a.awaitsRunning(t)
	h := a.follow(t)
	for i := range times {
		a.restart(t, fmt.Sprint("request ", i))
	}
	a.awaitsRunning(t)
	a.awaitsRevisions(t, fmt.Sprint(times))
	if most, _ := h.seen(); most != 1 {
		t.Errorf("expected one revision with Pods at a time, found %d", most)
	}
	known := a.get(t).Status.Restarts
	if n := len(known); n < 2 || n > times+1 || known[0].Revision != times || known[n-1].Cause != korifiv1alpha1.CausedByCreation {
		t.Errorf("expected the creation, the newest of %d restarts and perhaps some between to be remembered, found %+v", times, known)
	}
}

// Race d: a revision that was lowered behind admission's back stops everything but does no harm, and is counted on from.
func (s *stage) testLowered(t *testing.T) {
	a := s.newApp(t, options{instances: 1})
	a.awaitsRunning(t)
	a.restart(t, "once")
	a.awaitsRunning(t)
	a.quiet(t)
	edited := a.get(t)
	edited.Annotations[revisionAnnotation] = "0"
	if err := s.Client.Update(t.Context(), edited); !k8serrors.IsInvalid(err) {
		t.Errorf("expected an edit of the revision to be refused as invalid, found %v", err)
	}
	before := a.listPods(t)[0].UID
	s.withoutAdmission(t, func() { a.annotate(t, revisionAnnotation, "0") })
	a.awaitsUnreadable(t)
	if pods := a.listPods(t); len(pods) != 1 || pods[0].UID != before {
		t.Errorf("expected the Pod that runs to stay, found %d", len(pods))
	}
	if found := a.restart(t, "twice"); found != "2" {
		t.Errorf("expected the revision to be counted on from 1, found %s", found)
	}
	a.awaitsRunning(t)
	a.hasOnly(t, "2")
	if found := a.get(t).Status.LastRestart; found == nil || found.Cause != korifiv1alpha1.CausedByRepair {
		t.Errorf("expected a repair to be the cause, found %+v", found)
	}
}

func (a *app) awaitsUnreadable(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the app says that its revision cannot be", func() error {
		ready := meta.FindStatusCondition(a.get(t).Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != korifiv1alpha1.RevisionUnreadableReason || ready.Status != metav1.ConditionFalse {
			return fmt.Errorf("found %+v", ready)
		}
		return nil
	})
}

// withoutAdmission does what nobody can forbid to who may change the configuration of the API server.
func (s *stage) withoutAdmission(t *testing.T, f func()) {
	t.Helper()
	for _, config := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		config.SetName("torpor")
		if err := s.Client.Delete(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "nobody is asked", func() error { return s.admits(t, "") })
	f()
	s.InstallWebhooks(t, "https://"+s.address, nil)
	s.awaitsAdmission(t)
}

// Race j: a client that goes away at any moment of a restart has asked for it or has not; the app is never left stopped,
// and what was asked for comes true without the client.
func (s *stage) testAborts(t *testing.T) {
	const points = 20
	a := s.newApp(t, options{instances: 1})
	a.awaitsRunning(t)
	h := a.follow(t)
	begun := time.Now()
	a.restart(t, "to the end")
	whole := time.Since(begun)
	counted, aborted := 1, 0
	for i := range points {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/(points/4)) // From at once to much later than usual.
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"request %d"}}}`, torporv1alpha1.RestartRequestAnnotation, i)
		err := a.Client.Patch(ctx, &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}, client.RawPatch(types.MergePatchType, patch))
		cancel()
		if err != nil {
			aborted++
		}
		found := a.get(t)
		was := counted
		if counted, err = strconv.Atoi(found.Annotations[revisionAnnotation]); err != nil || counted < was || counted > i+2 || found.Spec.DesiredState != started {
			t.Fatalf("after %d: expected %s and a revision of %d to %d, found %s and %d (%v)", i, started, was, i+2, found.Spec.DesiredState, counted, err)
		}
	}
	if aborted == 0 || counted == 1 {
		t.Errorf("expected the client to go away and some restarts to be asked for nevertheless, found %d and %d of %d", aborted, counted-1, points)
	}
	a.quiet(t) // A request whose client is gone may still be on its way.
	a.awaitsRunning(t)
	a.hasOnly(t, a.get(t).Annotations[revisionAnnotation])
	if most, overlap := h.seen(); most != 1 || overlap != 0 {
		t.Errorf("expected one revision with Pods at a time, found %d, two of them for %s", most, overlap)
	}
}

// Race g: the process tells of its current revision only, and of no Pod that ends.
func (s *stage) testStats(t *testing.T) {
	a := s.newApp(t, options{instances: 2, command: "HOLLOW_START=1s HOLLOW_STOP=2s ./app"})
	a.awaitsRunning(t)
	before := a.getProcess(t).Status.InstancesStatus
	a.restart(t, "once")
	testenv.Eventually(t, "the new revision runs", func() error {
		process := a.getProcess(t)
		for index, one := range process.Status.InstancesStatus {
			old := before[index]
			if process.Status.ObservedRevision == 1 && one.State == korifiv1alpha1.RunningInstance && one.Timestamp.Equal(old.Timestamp) {
				t.Fatalf("instance %s of revision 0 is shown as running in revision 1", index)
			}
		}
		if process.Status.ObservedRevision != 1 || process.Status.ActualInstances != 2 {
			return errors.New("not yet")
		}
		return nil
	})
}

// Race h: names do not collide where they did, and an LRP that has the name of the next revision is waited for.
func (s *stage) testNameTaken(t *testing.T) {
	a := s.newApp(t, options{instances: 1})
	a.awaitsRunning(t)
	taken := &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: revision.LRPName(a.process, 1)},
		Spec:       eiriniv1.LRPSpec{GUID: "somebody-else", Version: "7", Image: image, DiskMB: 1, Instances: 0},
	}
	if err := s.Client.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	a.quiet(t)
	a.restart(t, "once")
	a.awaits(t, metav1.ConditionFalse, korifiv1alpha1.NameTakenReason)
	if err := s.Client.Delete(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	a.awaitsRunning(t)
}

// Race o: an LRP that is being deleted by somebody is waited for and made anew, never patched.
func (s *stage) testDyingObject(t *testing.T) {
	a := s.newApp(t, options{instances: 1, command: "HOLLOW_STOP=1s ./app"})
	a.awaitsRunning(t)
	h := a.follow(t)
	old := a.lrps(t)[0]
	if err := s.Client.Delete(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "another LRP of the same name runs", func() error {
		all := a.lrps(t)
		if len(all) != 1 || all[0].UID == old.UID || all[0].Status.Replicas != 1 {
			return fmt.Errorf("found %d", len(all))
		}
		if all[0].Name != old.Name {
			return fmt.Errorf("expected the name %s, found %s", old.Name, all[0].Name)
		}
		return nil
	})
	if n := len(a.listPods(t)); n != 1 {
		t.Errorf("expected one Pod, found %d", n)
	}
	if most, _ := h.seen(); most != 1 {
		t.Errorf("expected one revision, found %d", most)
	}
}

// Race p: an LRP that is newer than the app is never deleted; it is taken for the truth that the app's view lacks.
func (s *stage) testNewerLRP(t *testing.T) {
	a := s.newApp(t, options{instances: 1})
	a.awaitsRunning(t)
	process := a.getProcess(t)
	newer := &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: revision.LRPName(a.process, 9),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(process, korifiv1alpha1.CFProcessKind())},
		},
		Spec: eiriniv1.LRPSpec{GUID: a.process, Version: "9", AppGUID: a.name, Image: image, DiskMB: 1, Instances: 1},
	}
	if err := s.Client.Create(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it is told", func() error {
		ready := meta.FindStatusCondition(a.getProcess(t).Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != korifiv1alpha1.NewerRevisionReason && ready.Reason != korifiv1alpha1.RevisionUnreadableReason {
			return fmt.Errorf("found %+v", ready)
		}
		return nil
	})
	a.quiet(t)
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(newer), newer); err != nil || !newer.DeletionTimestamp.IsZero() {
		t.Fatalf("expected the newer LRP to be left alone, found it deleted (%v)", err)
	}
	a.awaitsRevisions(t, "0", "9")
	if found := a.set(t, stopped).Annotations[revisionAnnotation]; found != "10" {
		t.Errorf("expected the revision to be counted on past 9, found %s", found)
	}
	a.awaitsStopped(t)
	a.set(t, started)
	a.awaitsRunning(t)
	a.hasOnly(t, "10")
}

// An LRP's StatefulSet is only ever scaled: its template stays, whoever changes the LRP or the process.
func (s *stage) testTemplateStays(t *testing.T) {
	a := s.newApp(t, options{instances: 1})
	a.awaitsRunning(t)
	set := &appsv1.StatefulSet{}
	name := client.ObjectKey{Namespace: s.namespace, Name: revision.LRPName(a.process, 0)}
	if err := s.Client.Get(t.Context(), name, set); err != nil {
		t.Fatal(err)
	}
	process := a.getProcess(t)
	process.Spec.Command = "./another"
	process.Spec.DesiredInstances = new(int32(3))
	if err := s.Client.Update(t.Context(), process); err != nil {
		t.Fatal(err)
	}
	a.awaitsInstances(t, 3)
	after := &appsv1.StatefulSet{}
	if err := s.Client.Get(t.Context(), name, after); err != nil {
		t.Fatal(err)
	}
	if after.Status.UpdateRevision != set.Status.UpdateRevision || *after.Spec.Replicas != 3 {
		t.Errorf("expected the same template and 3 replicas, found %s and %d", after.Status.UpdateRevision, *after.Spec.Replicas)
	}
}

// An app that is deleted takes everything with it, and stays until its Pods are gone.
func (s *stage) testDelete(t *testing.T) {
	a := s.newApp(t, options{instances: 2, command: "HOLLOW_STOP=1s ./app"})
	a.awaitsRunning(t)
	a.isDeleted(t)
}

// Orgs and spaces are namespaces with labels, and a namespace that is somebody else's is left alone.
func (s *stage) testSpaces(t *testing.T) {
	org := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "org-1"}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "one"}}
	taken := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "kube-system"}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "two"}}
	if err := errors.Join(s.Client.Create(t.Context(), org), s.Client.Create(t.Context(), taken)); err != nil {
		t.Fatal(err)
	}
	awaits := func(obj client.Object, conditions func() []metav1.Condition, reason string) {
		t.Helper()
		testenv.Eventually(t, obj.GetName()+" is "+reason, func() error {
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				return fmt.Errorf("get: %w", err)
			}
			if c := meta.FindStatusCondition(conditions(), korifiv1alpha1.ReadyCondition); c == nil || c.Reason != reason {
				return fmt.Errorf("found %+v", c)
			}
			return nil
		})
	}
	awaits(org, func() []metav1.Condition { return org.Status.Conditions }, korifiv1alpha1.NamespaceReadyReason)
	awaits(taken, func() []metav1.Condition { return taken.Status.Conditions }, korifiv1alpha1.NameTakenReason)
	space := &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: "org-1", Name: "space-1"}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: "s"}}
	if err := s.Client.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	awaits(space, func() []metav1.Condition { return space.Status.Conditions }, korifiv1alpha1.NamespaceReadyReason)
	for _, obj := range []client.Object{taken, space, org} {
		if err := s.Client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, obj.GetName()+" is gone", func() error { return s.gone(t, obj) })
	}
}
