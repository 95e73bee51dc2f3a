// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/podcache"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	// maxEvents is larger than the number of events that a StatefulSet has with the same reason.
	maxEvents = 100
	// maxRefusal limits the bytes of each message from an event or a Pod.
	maxRefusal = 500
)

// observe reads an LRP's objects from the cache.
func (c Controller) observe(ctx context.Context, obj *eiriniv1.LRP) (lrp.Observed, error) {
	o := lrp.Observed{LRP: obj, StatefulSet: &appsv1.StatefulSet{}, Budget: &policyv1.PodDisruptionBudget{}, Now: c.Clock.Now()}
	if len(obj.Spec.Ports) > 0 {
		o.StopDelay = c.Pods.StopDelay
	}
	name := client.ObjectKey{Namespace: obj.Namespace, Name: revision.StatefulSetName(obj.Name)}
	err := c.pods.Get(ctx, name, o.StatefulSet)
	if k8serrors.IsNotFound(err) {
		o.StatefulSet = nil
	} else if err != nil {
		return o, fmt.Errorf("read the StatefulSet: %w", err)
	}
	err = c.pods.Get(ctx, name, o.Budget)
	if k8serrors.IsNotFound(err) {
		o.Budget = nil
	} else if err != nil {
		return o, fmt.Errorf("read the disruption budget: %w", err)
	}
	var pods corev1.PodList
	if err := c.pods.List(ctx, &pods, client.InNamespace(obj.Namespace), client.MatchingFields{podcache.ByProcess: obj.Spec.GUID}); err != nil {
		return o, fmt.Errorf("list the Pods: %w", err)
	}
	serving := map[string]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if version := p.Labels[korifiv1alpha1.VersionLabel]; version == obj.Spec.Version {
			o.Pods = append(o.Pods, p)
		} else if !podstatus.IsEnding(p) && podstatus.InstanceStatus(p).State == korifiv1alpha1.RunningInstance {
			serving[version] = true
		}
	}
	if o.OthersServe, err = c.stays(ctx, obj, serving); err != nil {
		return o, err
	}
	// The cache returns Pods in any order, and the status must describe the same Pod each time.
	slices.SortFunc(o.Pods, revision.CompareByAge[*corev1.Pod])
	switch {
	case !o.LacksPods():
		o.Refusal, err = c.readPullRefusal(ctx, o)
	// At each start, Pods are missing for a moment. The events are read only later, because reading them costs a
	// request.
	case c.Clock.Since(o.StatefulSet.CreationTimestamp.Time) >= minRefusalInterval:
		o.Refusal, err = c.readRefusal(ctx, o.StatefulSet)
	}
	return o, err
}

// stays reports whether any of the given versions of the process has an LRP that is not being deleted.
func (c Controller) stays(ctx context.Context, obj *eiriniv1.LRP, versions map[string]bool) (bool, error) {
	if len(versions) == 0 {
		return false, nil
	}
	var lrps eiriniv1.LRPList
	err := c.client.List(ctx, &lrps, client.InNamespace(obj.Namespace), client.MatchingFields{byProcess: obj.Spec.GUID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("list the LRPs of the process: %w", err)
	}
	return slices.ContainsFunc(lrps.Items, func(l eiriniv1.LRP) bool { return versions[l.Spec.Version] && l.DeletionTimestamp.IsZero() }), nil
}

// readRefusal returns the last error with which the StatefulSet's controller could not create a Pod. Kubernetes reports
// the error only in an event.
func (c Controller) readRefusal(ctx context.Context, set *appsv1.StatefulSet) (string, error) {
	said, err := c.readNewestEvent(ctx, set, "FailedCreate")
	// The text before this marker contains the name of the Pod, which differs between events.
	if _, why, found := strings.Cut(said, " failed error: "); found {
		said = why
	}
	return said[:min(len(said), maxRefusal)], err
}

// readPullRefusal returns the reason why an image is not pulled if some image pull Secrets are missing. Without these
// Secrets, the kubelet tries to pull anyway, so the registry's error looks like a wrong password. The kubelet reports
// the missing Secrets only in an event.
func (c Controller) readPullRefusal(ctx context.Context, o lrp.Observed) (string, error) {
	at := slices.IndexFunc(o.Pods, func(pod *corev1.Pod) bool {
		return !podstatus.IsEnding(pod) && podstatus.DescribePullFailure(pod) != ""
	})
	if at < 0 || len(o.LRP.Spec.ImagePullSecrets) == 0 {
		return "", nil
	}
	said, err := c.readNewestEvent(ctx, o.Pods[at], "FailedToRetrieveImagePullSecret")
	if said == "" || err != nil {
		return "", err
	}
	why := podstatus.DescribePullFailure(o.Pods[at])
	return said[:min(len(said), maxRefusal)] + ": " + why[:min(len(why), maxRefusal)], nil
}

// readNewestEvent returns the message of the newest event about an object with the given reason, or "" if there is
// none.
func (c Controller) readNewestEvent(ctx context.Context, about client.Object, reason string) (string, error) {
	var events corev1.EventList
	err := c.live.List(ctx, &events, client.InNamespace(about.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(about.GetUID()), "reason": reason}, client.Limit(maxEvents))
	if err != nil {
		return "", fmt.Errorf("list events of %s: %w", about.GetName(), err)
	}
	if len(events.Items) == 0 {
		return "", nil
	}
	return slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) }).Message, nil
}

// listRemainingPods lists the Pods of an LRP from the API server.
func (c Controller) listRemainingPods(ctx context.Context, obj *eiriniv1.LRP) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.live.List(ctx, &pods, client.InNamespace(obj.Namespace), client.MatchingLabels(lrp.PodSelector(obj).MatchLabels))
	if err != nil {
		return nil, fmt.Errorf("list the Pods that are left: %w", err)
	}
	return pods.Items, nil
}
