// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// Race c of docs/adr/0010-revisions-of-apps.md: each restart that is requested during another restart is counted, and
// only Pods of the last revision remain.
func TestManyRestartRequestsAreEachCounted(t *testing.T) {
	e := shared.Get(t)
	const times = 10
	a := e.createApp(t, appOptions{instances: 1, command: "HOLLOW_STOP=300ms ./app"})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	for i := range times {
		a.requestRestart(t, fmt.Sprint("request ", i))
	}
	a.waitUntilRunning(t)
	a.waitForRevisions(t, fmt.Sprint(times))
	if most, _ := h.measureOverlap(); most != 1 {
		t.Errorf("expected one revision with Pods at a time, found %d", most)
	}
	known := a.getApp(t).Status.Restarts
	if n := len(known); n < 2 || n > times+1 || known[0].Revision != times || known[n-1].Cause != korifiv1alpha1.CausedByCreation {
		t.Errorf("expected the creation, the newest of %d restarts and perhaps some between to be remembered, found %+v", times, known)
	}
}

// Race d of docs/adr/0010-revisions-of-apps.md: if a revision is lowered by bypassing admission, reconciliation stops
// without deleting anything. Counting later continues from the observed revision.
func TestLoweredRevisionIsCountedOn(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	a.waitUntilQuiet(t)
	edited := a.getApp(t)
	edited.Annotations[revisionAnnotation] = "0"
	if err := e.Client.Update(t.Context(), edited); !k8serrors.IsInvalid(err) {
		t.Errorf("expected an edit of the revision to be refused as invalid, found %v", err)
	}
	before := a.listPods(t)[0].UID
	e.withoutAdmission(t, func() { a.annotateApp(t, revisionAnnotation, "0") })
	a.waitUntilUnreadable(t)
	if pods := a.listPods(t); len(pods) != 1 || pods[0].UID != before {
		t.Errorf("expected the Pod that runs to stay, found %d", len(pods))
	}
	if found := a.requestRestart(t, "twice"); found != "2" {
		t.Errorf("expected the revision to be counted on from 1, found %s", found)
	}
	a.waitUntilRunning(t)
	a.expectOnlyRevision(t, "2")
	if found := a.getApp(t).Status.LastRestart; found == nil || found.Cause != korifiv1alpha1.CausedByRepair {
		t.Errorf("expected a repair to be the cause, found %+v", found)
	}
}

func (a *app) waitUntilUnreadable(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the app reports an unreadable revision", func() error {
		ready := meta.FindStatusCondition(a.getApp(t).Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != korifiv1alpha1.RevisionUnreadableReason || ready.Status != metav1.ConditionFalse {
			return fmt.Errorf("found %+v", ready)
		}
		return nil
	})
}

// withoutAdmission runs f while the webhook configurations are deleted. A cluster administrator can always delete them.
func (e *env) withoutAdmission(t *testing.T, f func()) {
	t.Helper()
	for _, config := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		config.SetName("torpor")
		if err := e.Client.Delete(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	e.WaitForAppAdmission(t, e.namespace, "")
	f()
	e.InstallWebhooks(t, "https://"+e.address, nil)
	e.WaitForAppAdmission(t, e.namespace, korifiv1alpha1.FirstRevision)
}

// Race j of docs/adr/0010-revisions-of-apps.md: a client that disconnects during a restart request has either requested
// the restart or not. The app is never left stopped, and an accepted request completes without the client.
func TestClientThatGoesAwayLeavesNoAppStopped(t *testing.T) {
	e := shared.Get(t)
	const points = 20
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	begun := time.Now()
	a.requestRestart(t, "to the end")
	whole := time.Since(begun)
	counted, aborted := 1, 0
	for i := 0; i < points || counted == 1; i++ { // On a slow machine, all requests with short timeouts may be aborted.
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/(points/4)) // 0 to four times the usual duration
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"request %d"}}}`, torporv1alpha1.RestartRequestAnnotation, i)
		err := a.Client.Patch(ctx, &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}, client.RawPatch(types.MergePatchType, patch))
		cancel()
		if err != nil {
			aborted++
		}
		found := a.getApp(t)
		was := counted
		if counted, err = strconv.Atoi(found.Annotations[revisionAnnotation]); err != nil || counted < was || counted > i+2 || found.Spec.DesiredState != started {
			t.Fatalf("after %d: expected %s and a revision of %d to %d, found %s and %d (%v)", i, started, was, i+2, found.Spec.DesiredState, counted, err)
		}
	}
	if aborted == 0 || counted == 1 {
		t.Errorf("expected the client to go away and some restarts to be asked for nevertheless, found %d and %d of %d", aborted, counted-1, points)
	}
	a.waitUntilQuiet(t) // A request of a disconnected client may still be in flight.
	a.waitUntilRunning(t)
	a.expectOnlyRevision(t, a.getApp(t).Annotations[revisionAnnotation])
	if most, overlap := h.measureOverlap(); most != 1 || overlap != 0 {
		t.Errorf("expected one revision with Pods at a time, found %d, two of them for %s", most, overlap)
	}
}

// Race g of docs/adr/0010-revisions-of-apps.md: the process reports only Pods of its current revision, and no
// terminating Pods.
func TestInstanceStatusesAreOfTheCurrentRevision(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2, command: "HOLLOW_START=1s HOLLOW_STOP=2s ./app"})
	a.waitUntilRunning(t)
	before := a.getProcess(t).Status.InstancesStatus
	a.requestRestart(t, "once")
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

// Torpor does not cache StatefulSets that belong to no app. If such a StatefulSet has the name that an LRP needs, the
// LRP's status reports the conflict.
func TestStatefulSetOfAnotherIsNamed(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1, state: stopped})
	a.waitUntilStopped(t)
	labels := map[string]string{"is": "another"}
	another := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: revision.StatefulSetName(revision.LRPName(a.process, 0))},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}},
	}
	e.ExpectCreated(t, another)
	a.setState(t, started)
	lrp := &eiriniv1.LRP{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: revision.LRPName(a.process, 0)}}
	testenv.Eventually(t, "the LRP names it", func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(lrp), lrp); err != nil {
			return err
		}
		c := meta.FindStatusCondition(lrp.Status.Conditions, korifiv1alpha1.ReadyCondition)
		return testenv.ErrorIf(c == nil || c.Reason != korifiv1alpha1.NameTakenReason || !strings.Contains(c.Message, another.Name), "found %+v", c)
	})
	if err := e.Client.Delete(t.Context(), another); err != nil {
		t.Fatal(err)
	}
}

// Race h of docs/adr/0010-revisions-of-apps.md: the names of LRPs do not collide. If a foreign LRP has the name of the
// next revision's LRP, the process waits until the foreign LRP is deleted.
func TestTakenLRPNameIsWaitedFor(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	taken := &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: revision.LRPName(a.process, 1)},
		Spec:       eiriniv1.LRPSpec{GUID: "somebody-else", Version: "7", Image: image, DiskMB: 1, Instances: 0},
	}
	if err := e.Client.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	a.waitUntilQuiet(t)
	a.requestRestart(t, "once")
	a.waitForReady(t, metav1.ConditionFalse, korifiv1alpha1.NameTakenReason)
	if err := e.Client.Delete(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	a.waitUntilRunning(t)
}

// Race o of docs/adr/0010-revisions-of-apps.md: an LRP that another client is deleting is never patched. The process
// waits until it is deleted, and then creates it again.
func TestLRPThatIsBeingDeletedIsRecreated(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1, command: "HOLLOW_STOP=1s ./app"})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	old := a.listLRPs(t)[0]
	if err := e.Client.Delete(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "another LRP of the same name runs", func() error {
		all := a.listLRPs(t)
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
	if most, _ := h.measureOverlap(); most != 1 {
		t.Errorf("expected one revision, found %d", most)
	}
}

// Race p of docs/adr/0010-revisions-of-apps.md: an LRP with a newer revision than the app is never deleted, because it
// shows that the cached app is stale.
func TestNewerLRPIsLeftAlone(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	process := a.getProcess(t)
	newer := &eiriniv1.LRP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.namespace, Name: revision.LRPName(a.process, 9),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(process, korifiv1alpha1.CFProcessKind())},
		},
		Spec: eiriniv1.LRPSpec{GUID: a.process, Version: "9", AppGUID: a.name, Image: image, DiskMB: 1, Instances: 1},
	}
	if err := e.Client.Create(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the newer LRP is reported", func() error {
		ready := meta.FindStatusCondition(a.getProcess(t).Status.Conditions, korifiv1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != korifiv1alpha1.NewerRevisionReason && ready.Reason != korifiv1alpha1.RevisionUnreadableReason {
			return fmt.Errorf("found %+v", ready)
		}
		return nil
	})
	a.waitUntilQuiet(t)
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(newer), newer); err != nil || !newer.DeletionTimestamp.IsZero() {
		t.Fatalf("expected the newer LRP to be left alone, found it deleted (%v)", err)
	}
	a.waitForRevisions(t, "0", "9")
	if found := a.setState(t, stopped).Annotations[revisionAnnotation]; found != "10" {
		t.Errorf("expected the revision to be counted on past 9, found %s", found)
	}
	a.waitUntilStopped(t)
	a.setState(t, started)
	a.waitUntilRunning(t)
	a.expectOnlyRevision(t, "10")
}

// The StatefulSet of an LRP is only ever scaled. Its template does not change when the LRP or the process changes.
func TestStatefulSetTemplateNeverChanges(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	set := &appsv1.StatefulSet{}
	name := client.ObjectKey{Namespace: e.namespace, Name: revision.LRPName(a.process, 0)}
	if err := e.Client.Get(t.Context(), name, set); err != nil {
		t.Fatal(err)
	}
	a.patchProcess(t, `{"spec":{"command":"./another","desiredInstances":3}}`)
	a.waitForInstances(t, 3)
	after := &appsv1.StatefulSet{}
	if err := e.Client.Get(t.Context(), name, after); err != nil {
		t.Fatal(err)
	}
	if after.Status.UpdateRevision != set.Status.UpdateRevision || *after.Spec.Replicas != 3 {
		t.Errorf("expected the same template and 3 replicas, found %s and %d", after.Status.UpdateRevision, *after.Spec.Replicas)
	}
}

// Deleting an app deletes all its objects. The app itself exists until its Pods are deleted.
func TestDeletedAppDeletesItsObjects(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2, command: "HOLLOW_STOP=1s ./app"})
	a.waitUntilRunning(t)
	a.deleteAndWait(t)
}

// Orgs and spaces are namespaces with labels. A namespace with another owner is not changed.
func TestOrgsAndSpacesAreNamespaces(t *testing.T) {
	e := shared.Get(t)
	org := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "org-1"}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "one"}}
	taken := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "kube-system"}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "two"}}
	if err := errors.Join(e.Client.Create(t.Context(), org), e.Client.Create(t.Context(), taken)); err != nil {
		t.Fatal(err)
	}
	awaits := func(obj client.Object, conditions func() []metav1.Condition, reason string) {
		t.Helper()
		testenv.Eventually(t, obj.GetName()+" is "+reason, func() error {
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
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
	if err := e.Client.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	awaits(space, func() []metav1.Condition { return space.Status.Conditions }, korifiv1alpha1.NamespaceReadyReason)
	e.expectRestrictedNamespace(t, "space-1")
	for _, obj := range []client.Object{taken, space, org} {
		if err := e.Client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, obj.GetName()+" is gone", func() error { return e.requireGone(t, obj) })
	}
}

// expectRestrictedNamespace expects that a space's namespace has its Pod Security level, which is restored after a
// removal, and its NetworkPolicy.
func (e *env) expectRestrictedNamespace(t *testing.T, name string) {
	t.Helper()
	const label = "pod-security.kubernetes.io/enforce"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	hasLevel := func(level string) func() error {
		return func() error {
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil {
				return fmt.Errorf("get: %w", err)
			}
			if found := namespace.Labels[label]; found != level {
				return fmt.Errorf("found the level %q", found)
			}
			return nil
		}
	}
	testenv.Eventually(t, "the space is restricted", hasLevel("restricted"))
	testenv.ExpectPatched(t, e.Environment, namespace, func(n *corev1.Namespace) { delete(n.Labels, label) })
	testenv.Eventually(t, "a space without a level is restricted", hasLevel("restricted"))
	testenv.Eventually(t, "Pods of others are kept out", func() error {
		return e.Client.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "torpor-spaces"}, &networkingv1.NetworkPolicy{})
	})
	loose := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "loose"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "loose", Image: "x"}}}}
	if err := e.Client.Create(t.Context(), loose); !k8serrors.IsForbidden(err) {
		t.Errorf("expected a Pod that is not restricted to be refused, found %v", err)
	}
}
