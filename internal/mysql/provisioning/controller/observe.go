// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// observation is what was read.
type observation struct {
	cluster *mocov1beta2.MySQLCluster
	// secret has the passwords; nil if there is none.
	secret *corev1.Secret
	// settings are the user's.
	settings map[string]string
	// pods by ordinal; nil for one that does not exist.
	pods []*corev1.Pod
	// statefulSet is the StatefulSet; nil if there is none.
	statefulSet *appsv1.StatefulSet
	now         time.Time
	// missing is what a user has to mend before anything can be made; err what may mend itself.
	missing string
	err     error
}

// observe reads everything that the decision depends on.
func (c Controller) observe(ctx context.Context, cluster *mocov1beta2.MySQLCluster) *observation {
	seen := &observation{cluster: cluster, now: c.Clock.Now()}
	seen.err = errors.Join(c.readSecret(ctx, seen), c.readSettings(ctx, seen), c.readPods(ctx, seen), c.readStatefulSet(ctx, seen))
	return seen
}

func (c Controller) readSecret(ctx context.Context, seen *observation) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var s corev1.Secret
	err := c.live.Get(ctx, namespacedName(seen.cluster, seen.cluster.ChildName()), &s)
	if k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the Secret %s: %w", seen.cluster.ChildName(), err)
	}
	seen.secret = &s
	return nil
}

func (c Controller) readSettings(ctx context.Context, seen *observation) error {
	name := settingsConfigMapName(seen.cluster)
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var m corev1.ConfigMap
	err := c.live.Get(ctx, namespacedName(seen.cluster, name), &m)
	if k8serrors.IsNotFound(err) {
		seen.missing = fmt.Sprintf("spec.mysqlConfigMapName: expected the ConfigMap %s in namespace %s, found none; "+
			"make it or remove the field", name, seen.cluster.Namespace)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the ConfigMap %s: %w", name, err)
	}
	seen.settings = m.Data
	return nil
}

func (c Controller) readPods(ctx context.Context, seen *observation) error {
	list, err := listPods(ctx, c.children, seen.cluster)
	seen.pods = list
	return err
}

// listPods are the Pods of a cluster by ordinal; nil for one that does not exist.
func listPods(ctx context.Context, from client.Reader, cluster *mocov1beta2.MySQLCluster) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var list corev1.PodList
	pods := make([]*corev1.Pod, cluster.Spec.Replicas)
	err := from.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels(provisioning.SelectorLabels(cluster)))
	if err != nil {
		return pods, fmt.Errorf("list the Pods: %w", err)
	}
	for i := range pods {
		at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Name == cluster.PodName(i) })
		if at >= 0 {
			pods[i] = &list.Items[at]
		}
	}
	return pods, nil
}

func (c Controller) readStatefulSet(ctx context.Context, seen *observation) error {
	u := newUnstructured(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	err := c.children.Get(ctx, namespacedName(seen.cluster, seen.cluster.ChildName()), u)
	if k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the StatefulSet: %w", err)
	}
	set := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, set); err != nil {
		return fmt.Errorf("read the StatefulSet: %w", err)
	}
	seen.statefulSet = set
	return nil
}

// observedRollout is what Decide looks at.
func (s *observation) observedRollout() provisioning.ObservedRollout {
	c := s.cluster
	o := provisioning.ObservedRollout{
		Name: c.Name, Offline: c.Spec.Offline, Primary: chosenPrimary(c), ClusteringStopped: c.ClusteringStopped(),
		StoppedInstances: c.Annotations[mocov1beta2.StoppedInstancesAnnotation] != "",
		Healthy:          meta.IsStatusConditionTrue(c.Status.Conditions, mocov1beta2.HealthyCondition),
	}
	revision := ""
	if s.statefulSet != nil && s.statefulSet.Status.ObservedGeneration >= s.statefulSet.Generation {
		revision = s.statefulSet.Status.UpdateRevision
	}
	o.RevisionKnown = revision != ""
	for _, p := range s.pods {
		o.Pods = append(o.Pods, podStateOf(p, revision, s.now))
	}
	return o
}

func podStateOf(p *corev1.Pod, revision string, now time.Time) provisioning.PodState {
	if p == nil {
		return provisioning.PodState{}
	}
	facts := provisioning.PodState{
		Exists: true, Terminating: !p.DeletionTimestamp.IsZero(),
		Outdated:          p.Labels[appsv1.StatefulSetRevisionLabel] != revision,
		DemotionRequested: p.Annotations[mocov1beta2.DemoteAnnotation] == "true",
	}
	for _, is := range p.Status.Conditions {
		if is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue {
			facts.Ready, facts.ReadyFor = true, now.Sub(is.LastTransitionTime.Time)
		}
	}
	return facts
}

// chosenPrimary is the primary that clustering has chosen.
func chosenPrimary(cluster *mocov1beta2.MySQLCluster) int {
	if i, chosen := cluster.Status.Primary(); chosen && i < int(cluster.Spec.Replicas) {
		return i
	}
	return provisioning.None
}

// namespacedName is the name of something in the cluster's namespace.
func namespacedName(cluster *mocov1beta2.MySQLCluster, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: cluster.Namespace, Name: name}
}
