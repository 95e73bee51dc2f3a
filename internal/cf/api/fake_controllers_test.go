// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// fakeControllers stands in for the controllers: it makes droplets of builds, and says of processes what they would say whose Pods
// are ready, or crash, a moment after they were asked for.
type fakeControllers struct {
	*testEnv
	mu sync.Mutex
	// idle apps are left alone; crashing ones crash.
	idle, crashing map[string]bool
}

const fakeControllerInterval = 50 * time.Millisecond

func startFakeControllers(t *testing.T, w *testEnv) *fakeControllers {
	t.Helper()
	p := &fakeControllers{testEnv: w, idle: map[string]bool{}, crashing: map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(fakeControllerInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.reconcileAll(ctx)
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return p
}

func (p *fakeControllers) setFlag(of map[string]bool, app string, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of[app] = is
}

// reconcileAll looks at everything once; what fails is tried again in the next one.
func (p *fakeControllers) reconcileAll(ctx context.Context) {
	var builds korifiv1alpha1.CFBuildList
	if p.Client.List(ctx, &builds) != nil {
		return
	}
	for i := range builds.Items {
		if b := &builds.Items[i]; b.Status.Droplet == nil {
			var from korifiv1alpha1.CFPackage
			if p.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.PackageRef.Name}, &from) == nil {
				b.Status.State = korifiv1alpha1.StagedBuild
				b.Status.Droplet = &korifiv1alpha1.Droplet{Registry: from.Spec.Source.Registry}
				_ = p.Client.Status().Update(ctx, b)
			}
		}
	}
	var apps korifiv1alpha1.CFAppList
	if p.Client.List(ctx, &apps) != nil {
		return
	}
	for i := range apps.Items {
		p.recordRevision(ctx, &apps.Items[i])
	}
	p.createNamespaces(ctx)
	var deployments torporv1alpha1.CFDeploymentList
	if p.Client.List(ctx, &deployments) != nil {
		return
	}
	for i := range deployments.Items {
		p.advanceDeployment(ctx, &deployments.Items[i])
	}
	var processes korifiv1alpha1.CFProcessList
	if p.Client.List(ctx, &processes) != nil {
		return
	}
	for i := range processes.Items {
		p.reportProcess(ctx, &processes.Items[i])
	}
}

// recordRevision writes down the revision of an app.
func (p *fakeControllers) recordRevision(ctx context.Context, app *korifiv1alpha1.CFApp) {
	current, _, _ := revision.FromApp(app)
	known := app.Status.Restarts
	if len(known) > 0 && known[0].Revision == current && known[0].Droplet == app.Annotations[torporv1alpha1.DropletAnnotation] {
		return
	}
	if len(known) > 0 && known[0].Revision == current {
		known = known[1:]
	}
	at, _ := time.Parse(time.RFC3339, app.Annotations[torporv1alpha1.RevisedAtAnnotation])
	app.Status.Restarts = slices.Insert(slices.Clone(known), 0, korifiv1alpha1.Restart{
		Revision: current, Cause: korifiv1alpha1.RestartCause(app.Annotations[torporv1alpha1.CauseAnnotation]), At: metav1.NewTime(at),
		By: app.Annotations[torporv1alpha1.RevisedByAnnotation], Droplet: app.Annotations[torporv1alpha1.DropletAnnotation],
	})
	if newest := &app.Status.Restarts[0]; newest.Cause == "" {
		newest.Cause, newest.At = korifiv1alpha1.CausedByCreation, app.CreationTimestamp
	}
	_ = p.Client.Status().Update(ctx, app)
}

// createNamespaces makes the namespaces of orgs and spaces.
func (p *fakeControllers) createNamespaces(ctx context.Context) {
	var orgs korifiv1alpha1.CFOrgList
	var spaces korifiv1alpha1.CFSpaceList
	if p.Client.List(ctx, &orgs) != nil || p.Client.List(ctx, &spaces) != nil {
		return
	}
	for i := range orgs.Items {
		name := orgs.Items[i].Name
		_ = p.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{korifiv1alpha1.OrgGUIDLabel: name}}})
	}
	for i := range spaces.Items {
		s := &spaces.Items[i]
		_ = p.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{
			korifiv1alpha1.OrgGUIDLabel: s.Namespace, korifiv1alpha1.SpaceGUIDLabel: s.Name,
		}}})
	}
}

func (p *fakeControllers) reportProcess(ctx context.Context, reportProcess *korifiv1alpha1.CFProcess) {
	var app korifiv1alpha1.CFApp
	if p.Client.Get(ctx, client.ObjectKey{Namespace: reportProcess.Namespace, Name: reportProcess.Spec.AppRef.Name}, &app) != nil {
		return
	}
	p.mu.Lock()
	idle, crashing := p.idle[app.Name], p.crashing[app.Name]
	p.mu.Unlock()
	p.recordRevision(ctx, &app)
	if idle {
		return
	}
	before := reportProcess.Status.DeepCopy()
	setProcessStatus(&app, reportProcess, crashing)
	if !equality.Semantic.DeepEqual(before, &reportProcess.Status) {
		_ = p.Client.Status().Update(ctx, reportProcess)
	}
}

// advanceDeployment asks for the revision in one pass, and says in a later one how it went.
func (p *fakeControllers) advanceDeployment(ctx context.Context, d *torporv1alpha1.CFDeployment) {
	var app korifiv1alpha1.CFApp
	if d.Status.Value == torporv1alpha1.FinalizedDeployment || p.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.AppRef.Name}, &app) != nil {
		return
	}
	p.mu.Lock()
	idle := p.idle[app.Name]
	p.mu.Unlock()
	s := &d.Status
	s.ObservedGeneration, s.Value, s.Reason = d.Generation, torporv1alpha1.ActiveDeployment, torporv1alpha1.DeployingState
	steps := int32(max(1, len(d.Spec.Steps)))
	switch mine := app.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name; {
	case !mine && s.Revision != 0:
		s.Value, s.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.SupersededState
	case !mine:
		app.Annotations[torporv1alpha1.DeploymentAnnotation], app.Spec.DesiredState = d.Name, korifiv1alpha1.StartedState
		app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: d.Spec.DropletRef.Name}
		if p.Client.Update(ctx, &app) != nil {
			return
		}
		s.Revision, _, _ = revision.FromApp(&app)
	case d.Spec.Cancelled:
		s.Value, s.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.CanceledState
	case idle:
	case d.Spec.Strategy == torporv1alpha1.CanaryDeployment && d.Spec.ContinuedSteps < steps:
		s.Reason, s.CurrentStep, s.TotalSteps = torporv1alpha1.PausedState, d.Spec.ContinuedSteps+1, steps
	default:
		s.Value, s.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.DeployedState
	}
	_ = p.Client.Status().Update(ctx, d)
}

func setProcessStatus(app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess, crashing bool) {
	s := &p.Status
	s.ObservedRevision, _, _ = revision.FromApp(app)
	ready := metav1.Condition{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: korifiv1alpha1.StoppedReason}
	s.ActualInstances, s.InstancesStatus, s.Revisions = 0, nil, nil
	if app.Spec.DesiredState == korifiv1alpha1.StartedState {
		desired := process.DesiredInstances(p)
		state, details := korifiv1alpha1.RunningInstance, ""
		if ready.Reason = korifiv1alpha1.RunningReason; crashing {
			state, details, ready.Status, ready.Reason = korifiv1alpha1.CrashedInstance, "exit code 1", metav1.ConditionFalse, korifiv1alpha1.StartingReason
		} else {
			s.ActualInstances = desired
		}
		s.InstancesStatus = map[string]korifiv1alpha1.InstanceStatus{}
		for i := range desired {
			s.InstancesStatus[strconv.Itoa(int(i))] = korifiv1alpha1.InstanceStatus{State: state, Details: details}
		}
		s.Revisions = []korifiv1alpha1.RevisionStatus{{Revision: s.ObservedRevision, Desired: desired, Ready: s.ActualInstances}}
	}
	meta.SetStatusCondition(&s.Conditions, ready)
}

// createApp is one with a droplet, as a push leaves it.
func (w *testEnv) createApp(t *testing.T, space, name string, instances int32, state korifiv1alpha1.AppState) string {
	t.Helper()
	alice := w.callerNamed(t, "alice")
	made := alice.send(t, "POST", "/v3/apps", `{"name":"`+name+`","lifecycle":{"type":"docker"},"relationships":{"space":{"data":{"guid":"`+space+`"}}}}`)
	guid := jsonField(t, made.body, "guid")
	image := alice.send(t, "POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},"relationships":{"app":{"data":{"guid":"`+guid+`"}}}}`)
	build := alice.send(t, "POST", "/v3/builds", `{"package":{"guid":"`+jsonField(t, image.body, "guid")+`"}}`)
	droplet := jsonField(t, alice.get(t, "/v3/builds/"+jsonField(t, build.body, "guid")).body, "droplet.guid")
	alice.send(t, "PATCH", "/v3/apps/"+guid+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	alice.send(t, "POST", "/v3/apps/"+guid+"/processes/web/actions/scale", `{"instances":`+strconv.Itoa(int(instances))+`}`)
	if state == korifiv1alpha1.StartedState {
		alice.send(t, "POST", "/v3/apps/"+guid+"/actions/start", "")
		alice.get(t, "/v3/apps/"+guid+"/processes/web/stats")
	}
	return guid
}

// createPod is one of an app's instances as far as labels go.
func (w *testEnv) createPod(t *testing.T, space, app, index string) {
	t.Helper()
	w.createPodOnNode(t, "", space, app, index)
}

// createPodOnNode is the same on a node, by name.
func (w *testEnv) createPodOnNode(t *testing.T, node, space, app, index string) string {
	t.Helper()
	var a korifiv1alpha1.CFApp
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: app}, &a); err != nil {
		t.Fatal(err)
	}
	process := revision.ProcessName(app, korifiv1alpha1.WebProcess)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "shop-", Labels: map[string]string{
			korifiv1alpha1.AppGUIDLabel: app, korifiv1alpha1.ProcessGUIDLabel: process, korifiv1alpha1.ProcessTypeLabel: korifiv1alpha1.WebProcess,
			korifiv1alpha1.VersionLabel: a.Annotations[korifiv1alpha1.RevisionAnnotation], appsv1.PodIndexLabel: index,
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: eiriniv1.ApplicationContainer, Image: "shop:1"}}},
	}
	w.ExpectCreated(t, pod)
	return pod.Name
}
