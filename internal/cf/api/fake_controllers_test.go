// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// fakeControllers replaces the real controllers. It creates droplets for builds, namespaces for orgs and spaces, and
// revisions for deployments. It reports process statuses as if Pods became ready, or crashed, shortly after they were
// requested.
type fakeControllers struct {
	client client.Client
	mu     sync.Mutex
	// Apps in idle are not reconciled. The instances of apps in crashing crash. Apps in uncancellable have no older
	// revision left.
	idle, crashing, uncancellable map[string]bool
	// namespaces is the set of existing namespaces.
	namespaces map[string]bool
}

const fakeControllerInterval = 50 * time.Millisecond

// spaceWithoutNamespace is the name of a space for which no namespace is created.
const spaceWithoutNamespace = "without-namespace"

func startFakeControllers(t testing.TB, env *testenv.Environment) *fakeControllers {
	t.Helper()
	f := &fakeControllers{client: env.Client, idle: map[string]bool{}, crashing: map[string]bool{}, uncancellable: map[string]bool{}, namespaces: map[string]bool{}}
	testenv.RunInBackground(t, "the fake controllers", func(ctx context.Context) error {
		wait.UntilWithContext(ctx, f.reconcileAll, fakeControllerInterval)
		return nil
	})
	return f
}

// setIdle pauses or resumes the reconciliation of an app.
func (f *fakeControllers) setIdle(app string, idle bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle[app] = idle
}

func (f *fakeControllers) setCrashing(app string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashing[app] = true
}

const tooLateToCancel = "the cancellation came too late"

func (f *fakeControllers) setUncancellable(app string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uncancellable[app] = true
}

// reconcileAll reconciles every object once. Failures are retried in the next pass. A pass must be quick even if the
// tests leave many objects, because the API waits only a few seconds for the revision of a new deployment.
func (f *fakeControllers) reconcileAll(ctx context.Context) {
	var deployments torporv1alpha1.CFDeploymentList
	var builds korifiv1alpha1.CFBuildList
	var apps korifiv1alpha1.CFAppList
	var processes korifiv1alpha1.CFProcessList
	if errors.Join(f.client.List(ctx, &deployments), f.client.List(ctx, &builds), f.client.List(ctx, &apps), f.client.List(ctx, &processes)) != nil {
		return
	}
	for i := range deployments.Items {
		f.advanceDeployment(ctx, &deployments.Items[i])
	}
	for i := range builds.Items {
		f.stageBuild(ctx, &builds.Items[i])
	}
	byName := map[string]*korifiv1alpha1.CFApp{}
	for i := range apps.Items {
		byName[apps.Items[i].Name] = &apps.Items[i]
		f.recordRevision(ctx, &apps.Items[i])
	}
	for i := range processes.Items {
		if app := byName[processes.Items[i].Spec.AppRef.Name]; app != nil {
			f.reportProcess(ctx, app, &processes.Items[i])
		}
	}
	f.createNamespaces(ctx)
	f.advanceTasks(ctx)
}

// advanceTasks numbers new tasks in one pass and starts them in a later one. It also ends cancelled tasks.
func (f *fakeControllers) advanceTasks(ctx context.Context) {
	var tasks korifiv1alpha1.CFTaskList
	if f.client.List(ctx, &tasks) != nil {
		return
	}
	highest := map[string]int64{}
	for _, t := range tasks.Items {
		highest[t.Spec.AppRef.Name] = max(highest[t.Spec.AppRef.Name], t.Status.SequenceID)
	}
	for i := range tasks.Items {
		t := &tasks.Items[i]
		s := &t.Status
		became := func(kind, message string) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: korifiv1alpha1.TaskProceedsReason, Message: message})
		}
		switch {
		case s.SequenceID == 0:
			highest[t.Spec.AppRef.Name]++
			s.SequenceID, s.MemoryMB, s.DiskQuotaMB, s.DropletRef.Name = highest[t.Spec.AppRef.Name], max(t.Spec.MemoryMB, 1), 1024, "droplet"
		case meta.IsStatusConditionTrue(s.Conditions, korifiv1alpha1.TaskFailedCondition):
			continue
		case t.Spec.Canceled:
			became(korifiv1alpha1.TaskFailedCondition, "task was cancelled")
		default:
			became(korifiv1alpha1.TaskStartedCondition, "")
		}
		_ = f.client.Status().Update(ctx, t)
	}
}

func (f *fakeControllers) stageBuild(ctx context.Context, build *korifiv1alpha1.CFBuild) {
	var from korifiv1alpha1.CFPackage
	if build.Status.Droplet != nil || f.client.Get(ctx, client.ObjectKey{Namespace: build.Namespace, Name: build.Spec.PackageRef.Name}, &from) != nil {
		return
	}
	build.Status.State = korifiv1alpha1.StagedBuild
	build.Status.Droplet = &korifiv1alpha1.Droplet{Registry: from.Spec.Source.Registry}
	_ = f.client.Status().Update(ctx, build)
}

// recordRevision adds an app's revision to its history.
func (f *fakeControllers) recordRevision(ctx context.Context, app *korifiv1alpha1.CFApp) {
	current, known := revision.DescribeCurrent(app), revision.ListRestarts(app)
	if len(known) > 0 && known[0].Revision == current.Revision && known[0].Droplet == current.Droplet {
		return
	}
	if len(known) > 0 && known[0].Revision == current.Revision {
		known = known[1:]
	}
	current.Settings = f.keepSettings(ctx, app)
	app.Status.Restarts = slices.Insert(known, 0, current)
	_ = f.client.Status().Update(ctx, app)
}

// keepSettings creates the Secret that records the settings of the web process for a revision.
func (f *fakeControllers) keepSettings(ctx context.Context, app *korifiv1alpha1.CFApp) map[string]string {
	var web korifiv1alpha1.CFProcess
	var environment corev1.Secret
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: app.Namespace, Name: name} }
	err := errors.Join(f.client.Get(ctx, key(revision.ProcessName(app.Name, korifiv1alpha1.WebProcess)), &web), f.client.Get(ctx, key(app.Spec.EnvSecretName), &environment))
	secret, wrong := process.BuildSettingsSecret(&web, process.SettingsOf(&web, environment.Data))
	if errors.Join(err, wrong) != nil || client.IgnoreAlreadyExists(f.client.Create(ctx, secret)) != nil {
		return nil
	}
	return map[string]string{korifiv1alpha1.WebProcess: secret.Name}
}

// createNamespaces creates the namespaces of orgs and spaces.
func (f *fakeControllers) createNamespaces(ctx context.Context) {
	var orgs korifiv1alpha1.CFOrgList
	var spaces korifiv1alpha1.CFSpaceList
	if errors.Join(f.client.List(ctx, &orgs), f.client.List(ctx, &spaces)) != nil {
		return
	}
	for i := range orgs.Items {
		f.createNamespace(ctx, orgs.Items[i].Name, map[string]string{korifiv1alpha1.OrgGUIDLabel: orgs.Items[i].Name})
	}
	for i := range spaces.Items {
		if spaces.Items[i].Spec.DisplayName == spaceWithoutNamespace {
			continue
		}
		f.createNamespace(ctx, spaces.Items[i].Name, map[string]string{
			korifiv1alpha1.OrgGUIDLabel: spaces.Items[i].Namespace, korifiv1alpha1.SpaceGUIDLabel: spaces.Items[i].Name,
		})
	}
}

func (f *fakeControllers) createNamespace(ctx context.Context, name string, labels map[string]string) {
	if f.namespaces[name] {
		return
	}
	err := f.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	f.namespaces[name] = client.IgnoreAlreadyExists(err) == nil
}

func (f *fakeControllers) reportProcess(ctx context.Context, app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess) {
	f.mu.Lock()
	idle, crashing := f.idle[app.Name], f.crashing[app.Name]
	f.mu.Unlock()
	if idle {
		return
	}
	before := p.Status.DeepCopy()
	setProcessStatus(app, p, crashing)
	if !equality.Semantic.DeepEqual(before, &p.Status) {
		_ = f.client.Status().Update(ctx, p)
	}
}

// advanceDeployment requests a deployment's revision in one pass, and reports the result in a later one.
func (f *fakeControllers) advanceDeployment(ctx context.Context, d *torporv1alpha1.CFDeployment) {
	var app korifiv1alpha1.CFApp
	if d.Status.Value == torporv1alpha1.FinalizedDeployment || f.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.AppRef.Name}, &app) != nil {
		return
	}
	f.mu.Lock()
	idle, uncancellable := f.idle[app.Name], f.uncancellable[app.Name]
	f.mu.Unlock()
	s := &d.Status
	s.ObservedGeneration, s.Value, s.Reason = d.Generation, torporv1alpha1.ActiveDeployment, torporv1alpha1.DeployingState
	steps := int32(max(1, len(d.Spec.Steps)))
	switch mine := app.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name; {
	case !mine && s.Revision != 0:
		s.Value, s.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.SupersededState
	case !mine:
		app.Annotations[torporv1alpha1.DeploymentAnnotation], app.Spec.DesiredState = d.Name, korifiv1alpha1.StartedState
		app.Annotations[torporv1alpha1.RevisedByAnnotation] = d.Annotations[torporv1alpha1.RequestedByAnnotation]
		app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: d.Spec.DropletRef.Name}
		if f.client.Update(ctx, &app) != nil {
			return
		}
		s.Revision, _, _ = revision.ReadRevision(&app)
	case d.Spec.Cancelled && uncancellable:
		s.Message = tooLateToCancel
	case d.Spec.Cancelled:
		s.Value, s.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.CanceledState
	case idle:
	case d.Spec.Strategy == torporv1alpha1.CanaryDeployment && d.Spec.ContinuedSteps < steps:
		s.Reason, s.CurrentStep, s.TotalSteps = torporv1alpha1.PausedState, d.Spec.ContinuedSteps+1, steps
	default:
		s.Value, s.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.DeployedState
	}
	_ = f.client.Status().Update(ctx, d)
}

func setProcessStatus(app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess, crashing bool) {
	s := &p.Status
	s.ObservedRevision, _, _ = revision.ReadRevision(app)
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
