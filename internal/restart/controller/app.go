// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/restart"
)

// Defaults of a process that is made because the app has none of its type.
const (
	memoryMB = 1024
	diskMB   = 1024
)

// family is an app with what belongs to it.
type family struct {
	app       *korifiv1alpha1.CFApp
	processes []korifiv1alpha1.CFProcess
	lrps      []eiriniv1.LRP
}

// stepApp is one pass over an app: it makes the processes that are missing and reports.
func (c Controller) stepApp(ctx context.Context, app *korifiv1alpha1.CFApp) (reconcile.Outcome, error) {
	f, err := c.family(ctx, app)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if !app.DeletionTimestamp.IsZero() {
		return c.end(ctx, f)
	}
	if !controllerutil.ContainsFinalizer(app, korifiv1alpha1.AppFinalizer) {
		return reconcile.Outcome{After: staleRetry, Why: "keep it until its Pods are gone"}, c.finalizer(ctx, app, controllerutil.AddFinalizer)
	}
	made, err := c.makeProcesses(ctx, f)
	out := c.reportApp(f)
	for _, p := range made {
		out.Events = append(out.Events, reconcile.Event{Reason: processCreated, Action: "Create", Note: "made the process " + p.Name + " of type " + p.Spec.ProcessType})
	}
	return out, err
}

func (c Controller) family(ctx context.Context, app *korifiv1alpha1.CFApp) (family, error) {
	var processes korifiv1alpha1.CFProcessList
	var lrps eiriniv1.LRPList
	in, of := client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}
	if err := errors.Join(c.client.List(ctx, &processes, in, of), c.client.List(ctx, &lrps, in, of)); err != nil {
		return family{}, fmt.Errorf("list what belongs to the app: %w", err)
	}
	return family{app: app, processes: processes.Items, lrps: lrps.Items}, nil
}

// makeProcesses makes the processes that the app lacks: web, which every app has, and what its current droplet runs.
func (c Controller) makeProcesses(ctx context.Context, f family) ([]*korifiv1alpha1.CFProcess, error) {
	types := []string{korifiv1alpha1.WebProcess}
	if ref := f.app.Spec.CurrentDropletRef; ref != nil {
		var build korifiv1alpha1.CFBuild
		err := c.client.Get(ctx, client.ObjectKey{Namespace: f.app.Namespace, Name: ref.Name}, &build)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read the droplet: %w", err)
		}
		if build.Status.Droplet != nil {
			for _, t := range build.Status.Droplet.ProcessTypes {
				types = append(types, t.Type)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var made []*korifiv1alpha1.CFProcess
	for _, kind := range types {
		there := func(p korifiv1alpha1.CFProcess) bool { return p.Spec.ProcessType == kind }
		if slices.ContainsFunc(f.processes, there) {
			continue
		}
		process := defaultProcess(f.app, kind)
		err := c.client.Create(ctx, process, client.FieldOwner(Name))
		if k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return made, nil // The app is about to be deleted with its space.
		}
		if client.IgnoreAlreadyExists(err) != nil {
			return made, fmt.Errorf("make the process %s: %w", process.Name, err)
		}
		if err == nil {
			made = append(made, process)
		}
	}
	return made, nil
}

func defaultProcess(app *korifiv1alpha1.CFApp, processType string) *korifiv1alpha1.CFProcess {
	name := restart.ProcessName(app.Name, processType)
	return &korifiv1alpha1.CFProcess{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: app.Namespace, Name: name,
			Labels: map[string]string{
				korifiv1alpha1.GUIDLabel: name, korifiv1alpha1.AppGUIDLabel: app.Name,
				korifiv1alpha1.ProcessTypeLabel: processType, korifiv1alpha1.SpaceGUIDLabel: app.Namespace,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(app, korifiv1alpha1.CFAppKind())},
		},
		Spec: korifiv1alpha1.CFProcessSpec{
			AppRef: korifiv1alpha1.Reference{Name: app.Name}, ProcessType: processType,
			MemoryMB: memoryMB, DiskQuotaMB: diskMB,
		},
	}
}

// end deletes what belongs to an app that is deleted, and lets go of it when no LRP and no Pod is left.
func (c Controller) end(ctx context.Context, f family) (reconcile.Outcome, error) {
	if !controllerutil.ContainsFinalizer(f.app, korifiv1alpha1.AppFinalizer) {
		return reconcile.Outcome{Why: "it is being deleted"}, nil
	}
	called, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var all []error
	for i := range f.processes {
		all = append(all, c.remove(called, &f.processes[i]))
	}
	for i := range f.lrps {
		all = append(all, c.remove(called, &f.lrps[i]))
	}
	if err := errors.Join(all...); err != nil {
		return reconcile.Outcome{}, fmt.Errorf("delete what belongs to the app: %w", err)
	}
	left, err := c.left(called, f.app)
	switch {
	case err != nil:
		return reconcile.Outcome{}, err
	case left > 0 || len(f.lrps) > 0:
		return reconcile.Outcome{After: endInterval, Why: "wait for its Pods"}, nil
	default:
		return reconcile.Outcome{Why: "nothing is left of it"}, c.finalizer(ctx, f.app, controllerutil.RemoveFinalizer)
	}
}

// endInterval is when an app that is deleted is looked at again; that an LRP goes is an event too.
const endInterval = time.Second

// left counts the LRPs and the Pods of an app past any cache.
func (c Controller) left(ctx context.Context, app *korifiv1alpha1.CFApp) (int, error) {
	var lrps eiriniv1.LRPList
	var pods corev1.PodList
	in, of := client.InNamespace(app.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app.Name}
	if err := errors.Join(c.live.List(ctx, &lrps, in, of), c.live.List(ctx, &pods, in, of)); err != nil {
		return 0, fmt.Errorf("list what is left of the app: %w", err)
	}
	return len(lrps.Items) + len(pods.Items), nil
}

func (c Controller) remove(ctx context.Context, o client.Object) error {
	if !o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := c.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if k8serrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// finalizer changes the finalizers of an app. That somebody else has written it is no error; the next pass looks again.
func (c Controller) finalizer(ctx context.Context, app *korifiv1alpha1.CFApp, change func(client.Object, string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after := app.DeepCopy()
	change(after, korifiv1alpha1.AppFinalizer)
	err := c.client.Patch(ctx, after, client.MergeFromWithOptions(app, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("change the finalizers: %w", err)
	}
	return nil
}
