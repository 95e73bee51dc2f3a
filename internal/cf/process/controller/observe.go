// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podcache"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// observation is an Observed with the objects from which it was derived.
type observation struct {
	process.Observed
	process *korifiv1alpha1.CFProcess
	// app is nil if the app does not exist.
	app  *korifiv1alpha1.CFApp
	lrps []eiriniv1.LRP
	pods []corev1.Pod
	// droplet is nil if it does not exist.
	droplet *korifiv1alpha1.Droplet
}

// scheduledEnd returns the time at which a Slumber's stop of the app expires, or the zero time. The expiry triggers no
// event.
func (o *observation) scheduledEnd() time.Time {
	if o.app == nil {
		return time.Time{}
	}
	return stoprecord.ScheduledEnd(o.app.Status.ScheduledStops, o.app.Annotations, o.Now)
}

// observe reads the objects from the caches, except for Korifi's Pods.
func (c Controller) observe(ctx context.Context, obj *korifiv1alpha1.CFProcess) (*observation, error) {
	o := &observation{process: obj, app: &korifiv1alpha1.CFApp{}}
	o.Now, o.ProcessGUID, o.Desired = c.Clock.Now(), obj.Name, process.DesiredInstances(obj)
	err := c.client.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.AppRef.Name}, o.app)
	switch {
	case k8serrors.IsNotFound(err):
		o.app = nil
	case err != nil:
		return nil, fmt.Errorf("read the app: %w", err)
	default:
		statusannotation.RestoreStatus(o.app)
	}
	if err := c.observeLRPsAndPods(ctx, o); err != nil {
		return nil, err
	}
	// The controller of apps deletes the LRPs of a deleted app. The garbage collector deletes the LRPs of a deleted
	// process.
	o.Deleted = o.app == nil || !o.app.DeletionTimestamp.IsZero() || !obj.DeletionTimestamp.IsZero()
	if o.Deleted {
		return o, nil
	}
	rollout, err := c.observeRollout(ctx, o.app)
	if err != nil {
		return nil, err
	}
	o.App, o.BegunAt = process.NewDesiredApp(process.ApplyScheduled(o.app, o.Now), rollout), revision.BegunAt(o.app)
	if err := c.observeDroplet(ctx, o); err != nil {
		return nil, err
	}
	return o, c.observeNameTaken(ctx, o)
}

// observeLRPsAndPods reads the LRPs and the Pods.
func (c Controller) observeLRPsAndPods(ctx context.Context, o *observation) error {
	var lrps eiriniv1.LRPList
	in := client.InNamespace(o.process.Namespace)
	if err := c.client.List(ctx, &lrps, in, client.MatchingFields{byOwner: string(o.process.UID)}); err != nil {
		return fmt.Errorf("list the LRPs: %w", err)
	}
	o.lrps = lrps.Items
	for i := range o.lrps {
		l := &o.lrps[i]
		observed := process.ObservedLRP{Name: l.Name, Revision: revision.ParseVersion(l.Spec.Version), Instances: l.Spec.Instances, Refusal: refusalOf(l)}
		if l.DeletionTimestamp != nil {
			observed.Deleting, observed.DeletedAt = true, l.DeletionTimestamp.Time
		}
		o.LRPs = append(o.LRPs, observed)
	}
	var pods corev1.PodList
	if err := c.pods.List(ctx, &pods, in, client.MatchingFields{podcache.ByProcess: o.process.Name}); err != nil {
		return fmt.Errorf("list the Pods: %w", err)
	}
	o.pods = pods.Items
	for i := range o.pods {
		o.Pods = podstatus.CountPod(o.Pods, &o.pods[i])
	}
	return c.observeUpstreamPods(ctx, o)
}

// observeUpstreamPods reads Korifi's Pods from the API server, because only Torpor's Pods are cached. It does so only
// for processes that Korifi has written and that have no LRP.
func (c Controller) observeUpstreamPods(ctx context.Context, o *observation) error {
	if len(o.lrps) > 0 || !c.Guard.HasUpstreamWritten(o.process) {
		return nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err := c.live.List(ctx, pods, client.InNamespace(o.process.Namespace), client.MatchingLabels{korifiv1alpha1.GUIDLabel: o.process.Name},
		client.HasLabels{korifiv1alpha1.AppWorkloadGUIDLabel})
	if err != nil {
		return fmt.Errorf("list the Pods of Korifi's runner: %w", err)
	}
	o.UpstreamPods = len(pods.Items)
	return nil
}

// observeDroplet reads the droplet of the app's revision.
func (c Controller) observeDroplet(ctx context.Context, o *observation) error {
	name := o.app.Annotations[torporv1alpha1.DropletAnnotation]
	if name == "" {
		o.NoDroplet = "expected a droplet, found none; set spec.currentDropletRef of the app"
		return nil
	}
	var build korifiv1alpha1.CFBuild
	err := c.client.Get(ctx, client.ObjectKey{Namespace: o.app.Namespace, Name: name}, &build)
	switch {
	case k8serrors.IsNotFound(err):
		o.NoDroplet = "expected the droplet " + name + ", found no CFBuild of that name; set spec.currentDropletRef to another CFBuild and restart the app"
	case err != nil:
		return fmt.Errorf("read the droplet: %w", err)
	case build.Status.Droplet == nil || build.Status.Droplet.Registry.Image == "":
		o.NoDroplet = "expected an image in status.droplet of the CFBuild " + name + ", found none; waiting for it"
	default:
		o.droplet = build.Status.Droplet
	}
	return nil
}

// observeNameTaken checks whether an LRP with another owner has the name for the app's revision.
func (c Controller) observeNameTaken(ctx context.Context, o *observation) error {
	name := revision.LRPName(o.process.Name, o.App.Revision)
	if slices.ContainsFunc(o.lrps, func(l eiriniv1.LRP) bool { return l.Name == name }) {
		return nil
	}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: o.process.Namespace, Name: name}, &eiriniv1.LRP{})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the LRP: %w", err)
	}
	o.NameTaken = err == nil
	return nil
}
