// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// maxDisplayName is the maximum length of a display name in Torpor's schema of CFApp. If the served schema allows
// longer names, these are ignored.
const maxDisplayName = 250

// cfApps is the kind CFApp. Its objects are stopped by spec.desiredState.
type cfApps struct{}

// GVK implements Definition.
func (cfApps) GVK() schema.GroupVersionKind { return korifiv1alpha1.CFAppKind() }

// Names implements Definition.
func (cfApps) Names() []string { return []string{"cfapp", "cfapps"} }

// AddToScheme implements Definition.
func (cfApps) AddToScheme(known *runtime.Scheme) error {
	if err := korifiv1alpha1.AddToScheme(known); err != nil {
		return fmt.Errorf("register the kinds of Korifi: %w", err)
	}
	if err := torporv1alpha1.AddToScheme(known); err != nil {
		return fmt.Errorf("register the kinds of Torpor: %w", err)
	}
	return nil
}

// New implements Definition.
func (cfApps) New() Object { return &korifiv1alpha1.CFApp{} }

// NewList implements Definition.
func (cfApps) NewList() List { return &korifiv1alpha1.CFAppList{} }

// Switch implements Definition.
func (cfApps) Switch() *FieldSwitch { return nil }

// Notes implements Definition. It returns nil, because the admission of CFApps records requesters together with
// revisions.
func (cfApps) Notes() *Notes { return nil }

// ListFinalizers implements Finalized.
func (k cfApps) ListFinalizers() []Finalizer {
	korifi := k.GVK().GroupVersion()
	return []Finalizer{
		{k.GVK(), korifiv1alpha1.AppFinalizer, otherwriter.Korifi()},
		{korifi.WithKind("CFSpace"), korifiv1alpha1.SpaceFinalizer, otherwriter.Korifi()},
		{korifi.WithKind("CFOrg"), korifiv1alpha1.OrgFinalizer, otherwriter.Korifi()},
		{eiriniv1.LRPKind(), eiriniv1.LRPFinalizer, otherwriter.Upstream{}},
	}
}

// ReadState implements Definition.
func (cfApps) ReadState(obj Object, now time.Time) State {
	app, isApp := obj.(*korifiv1alpha1.CFApp)
	if !isApp {
		return State{}
	}
	app = restoreStatus(app)
	s := State{
		IsStoppable:              app.DeletionTimestamp.IsZero(),
		IsStoppedWithoutSlumbers: app.Spec.DesiredState != korifiv1alpha1.StartedState && !stoprecord.Records(app.Status.Stops).HasReachedEnd(now),
		ScheduledStops:           stoprecord.ListScheduled(app.Status.ScheduledStops, app.Annotations),
	}
	if ready := meta.FindStatusCondition(app.Status.Conditions, korifiv1alpha1.ReadyCondition); ready != nil {
		isReady := ready.Status == metav1.ConditionTrue
		s.IsAsleep = isReady && ready.Reason == korifiv1alpha1.StoppedReason
		s.IsAwake = isReady && ready.Reason == korifiv1alpha1.RunningReason
		if !isReady {
			s.Message = ready.Reason
		}
	}
	s.ResumedAt, s.ResumedBy = findResume(app)
	return s
}

// findResume returns when, and by whom, the app was last started, restarted or deployed. An automatic start at the
// time in torpor.dev/until does not count, because it is not a request to keep the app running.
func findResume(app *korifiv1alpha1.CFApp) (at metav1.Time, by string) {
	current := revision.DescribeCurrent(app)
	if current.Cause == korifiv1alpha1.CausedByRestart || current.Cause == korifiv1alpha1.CausedByDeployment {
		at, by = current.At, current.By
	}
	stops := app.Status.Stops
	isByItself := len(stops) > 0 && stops[0].StartedBy == torporv1alpha1.UntilAnnotation
	if current.StartedAt != nil && current.StartedAt.After(at.Time) && !isByItself {
		at, by = *current.StartedAt, current.StartedBy
	}
	return at, by
}

// Parts implements Definition.
func (cfApps) Parts() []Part {
	change := func(wanted korifiv1alpha1.AppState) func(Object, time.Time) {
		return of(func(app *korifiv1alpha1.CFApp, _ time.Time) {
			app.Spec.DesiredState = wanted
			removeSharedAnnotations(app)
		})
	}
	return []Part{{
		Name: "app", Controllers: "restart", Annotations: sharedAnnotations(),
		Stop: change(korifiv1alpha1.StoppedState), Start: change(korifiv1alpha1.StartedState),
	}}
}

// DescribeRows implements Definition.
func (k cfApps) DescribeRows(obj Object) []Row {
	statusannotation.RestoreStatus(obj)
	app, _ := obj.(*korifiv1alpha1.CFApp)
	r := newRow(k, app, k.Parts()[0], app.Spec.DesiredState == korifiv1alpha1.StoppedState, app.Status.Stops)
	r = r.withScheduled(stoprecord.ListScheduled(app.Status.ScheduledStops, app.Annotations))
	r.DisplayName, r.Conditions = k.ReadDisplayName(app), app.Status.Conditions
	ready := meta.FindStatusCondition(r.Conditions, korifiv1alpha1.ReadyCondition)
	switch {
	case ready == nil:
		r.State = "unknown"
	case r.Stopped && ready.Reason == korifiv1alpha1.StoppedReason:
		r.State = "stopped"
	case r.Stopped:
		r.State = "stopping"
	case ready.Reason == korifiv1alpha1.RunningReason:
		r.State = "running"
	default:
		r.State = "starting"
	}
	if ready != nil {
		r.Message = ready.Message
	}
	r = r.withNext(r.StartCommand())
	if ready != nil && ready.Reason == korifiv1alpha1.BlockedReason {
		r.Next = StuckPrefix + ready.Message
	}
	return []Row{r}
}

// ReadDisplayName implements DisplayNamer.
func (cfApps) ReadDisplayName(obj Object) string {
	app, isApp := obj.(*korifiv1alpha1.CFApp)
	if !isApp || len(app.Spec.DisplayName) > maxDisplayName {
		return ""
	}
	return app.Spec.DisplayName
}

// ReadSavings implements Saver.
func (cfApps) ReadSavings(obj Object) Savings {
	if app, isApp := obj.(*korifiv1alpha1.CFApp); isApp {
		return Savings{Recorded: app.Status.Savings}
	}
	return Savings{}
}

// Restart implements Restarter.
func (cfApps) Restart(obj Object, now time.Time) {
	SetAnnotation(obj, torporv1alpha1.RestartRequestAnnotation, now.UTC().Format(time.RFC3339Nano))
}

// ReadRevisions implements Restarter. A revision is settled when its instances are ready, or have ended if the app
// is stopped, and no instance of an older revision is left.
func (cfApps) ReadRevisions(obj Object) (wanted, settled int64) {
	statusannotation.RestoreStatus(obj)
	app, isApp := obj.(*korifiv1alpha1.CFApp)
	if !isApp {
		return 0, 0
	}
	if revision, err := strconv.ParseInt(app.Annotations[korifiv1alpha1.RevisionAnnotation], 10, 64); err == nil {
		wanted = revision
	}
	conditions := app.Status.Conditions
	if meta.IsStatusConditionTrue(conditions, korifiv1alpha1.ReadyCondition) && !meta.IsStatusConditionTrue(conditions, korifiv1alpha1.DrainingCondition) {
		settled = app.Status.ObservedRevision
	}
	return wanted, settled
}

// ListRelated implements Planner.
func (cfApps) ListRelated(Object) []Related {
	return []Related{{List: &torporv1alpha1.CFDeploymentList{}, IsOptional: true}}
}

// Plan implements Planner.
func (cfApps) Plan(s PlanSubject, r preflight.PlanRequest) preflight.Plan {
	found, _ := s.Object.(*korifiv1alpha1.CFApp)
	a := plannedApp{CFApp: restoreStatus(found), startCommand: s.StartCommand}
	for _, related := range s.Related {
		if d, isDeployment := related.(*torporv1alpha1.CFDeployment); isDeployment {
			a.deployments = append(a.deployments, d)
		}
	}
	scheduled := stoprecord.FindScheduled(a.Status.ScheduledStops, a.Annotations, r.Now)
	findings := append(preflight.JudgeShared(a, r), preflight.JudgeSlumber(scheduled, r)...)
	if r.IsStart {
		findings = append(findings, a.judgeStart()...)
	} else {
		findings = append(findings, a.judgeStop()...)
	}
	effects := r.DescribeTakeover(scheduled, a.startCommand)
	if effects == nil {
		effects = a.effects(r)
	}
	return preflight.Plan{Effects: effects, Findings: preflight.Join(findings)}
}

// plannedApp is a CFApp that is to be stopped or started.
type plannedApp struct {
	*korifiv1alpha1.CFApp
	// deployments are all CFDeployments in the space of the app.
	deployments []*torporv1alpha1.CFDeployment
	// startCommand is the command that starts the app again.
	startCommand string
}

func (a plannedApp) effects(r preflight.PlanRequest) []string {
	if r.IsStart {
		return []string{"Its newest revision starts with the current droplet, and its routes lead to the instances of this revision"}
	}
	count := ""
	if a.Status.Instances != nil {
		count = fmt.Sprintf(", including %d ready ones", a.Status.Instances.Ready)
	}
	return []string{
		"All its instances are stopped" + count + ": each instance receives SIGTERM, and SIGKILL if it has not ended after ten seconds",
		"Its routes remain, but no instance answers requests", r.DescribeEnd(a.startCommand),
	}
}

// judgeStart returns a finding if the app has no droplet to run.
func (a plannedApp) judgeStart() []preflight.Finding {
	if a.Spec.CurrentDropletRef != nil {
		return nil
	}
	return []preflight.Finding{preflight.NewFinding(torporv1alpha1.StartRefusedFinding, 1, "no droplet to run; push the app")}
}

func (a plannedApp) judgeStop() []preflight.Finding {
	var findings []preflight.Finding
	for _, d := range a.deployments {
		if d.Spec.AppRef.Name == a.Name && d.Status.Value == torporv1alpha1.ActiveDeployment {
			findings = append(findings, preflight.NewFinding(torporv1alpha1.DeploymentUnderwayFinding, 1, fmt.Sprintf("the %s deployment %s", d.Spec.Strategy, d.Name)))
			break // At most one deployment is in progress.
		}
	}
	if ready := meta.FindStatusCondition(a.Status.Conditions, korifiv1alpha1.ReadyCondition); ready != nil && ready.Reason == korifiv1alpha1.BlockedReason {
		findings = append(findings, preflight.NewFinding(torporv1alpha1.NotHealthyFinding, 1, ready.Message))
	}
	return findings
}
