// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

type observation struct {
	provisioning.Observed

	// secret is the Secret with the passwords. It is nil if the Secret does not exist.
	secret *corev1.Secret
	// tlsSecret is the Secret with the servers' certificate. It is nil if the Secret does not exist. certificate is the
	// desired content of the Secret.
	tlsSecret   *corev1.Secret
	certificate map[string][]byte
	// settings holds the settings in the user's ConfigMap.
	settings map[string]string
	// pods holds the Pods by ordinal. The entry of a missing Pod is nil.
	pods []*corev1.Pod
}

// observe reads everything that the decision depends on. Errors become part of the observation, because the status
// reports them.
func (c Controller) observe(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (observation, error) {
	seen := observation{Observed: provisioning.Observed{Cluster: cluster}}
	if cluster.ReconciliationStopped() {
		seen.MayEndStop = mysqlswitches.Read(cluster, c.Clock.Now()).Reconciliation.IsEndSaved
		return seen, nil
	}
	seen.Cluster = mysqlswitches.ApplyScheduled(cluster, c.Clock.Now())
	var podsErr, setErr error
	seen.pods, podsErr = listPods(ctx, c.children, cluster)
	seen.StatefulSet, setErr = readStatefulSet(ctx, c.children, cluster)
	seen.Err = errors.Join(c.readPasswords(ctx, &seen), c.readCertificate(ctx, &seen), c.readSettings(ctx, &seen), podsErr, setErr)
	seen.Rollout = observedRollout(&seen, c.Clock.Now())
	seen.Rollout.HasTurn = c.turns.isOpenTo(client.ObjectKeyFromObject(cluster))
	if seen.Err == nil && len(seen.Problems) == 0 {
		seen.Err = c.observeObjects(ctx, &seen)
	}
	return seen, nil
}

func (c Controller) readPasswords(ctx context.Context, seen *observation) (err error) {
	seen.secret, err = c.readSecret(ctx, seen.Cluster, seen.Cluster.ChildName())
	return err
}

// readCertificate reads the servers' certificate, which is either Torpor's own or supplied by the user.
func (c Controller) readCertificate(ctx context.Context, seen *observation) (err error) {
	name := seen.Cluster.TLSSecretName()
	if seen.tlsSecret, err = c.readSecret(ctx, seen.Cluster, name); err != nil {
		return err
	}
	files := map[string][]byte{}
	if seen.tlsSecret != nil {
		files = seen.tlsSecret.Data
	}
	if seen.Cluster.Annotations[mocov1beta2.TLSSecretAnnotation] == "" {
		seen.certificate, seen.NeedsCertificate, err = certificates.RenewFiles(files, provisioning.ListTLSHosts(seen.Cluster), c.Clock.Now())
		return err
	}
	if missing := certificates.ListMissing(files); len(missing) > 0 {
		seen.Problems = append(seen.Problems, fmt.Sprintf("%s: expected the Secret %s in namespace %s with a certificate, found none under %s; "+
			"create it or remove the annotation", mocov1beta2.TLSSecretAnnotation, name, seen.Cluster.Namespace, strings.Join(missing, ", ")))
	}
	return nil
}

// readSecret reads a Secret. It returns nil if the Secret does not exist.
func (c Controller) readSecret(ctx context.Context, cluster *mocov1beta2.MySQLCluster, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	s := &corev1.Secret{}
	err := c.live.Get(ctx, namespacedName(cluster, name), s)
	if k8serrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secret %s: %w", name, err)
	}
	return s, nil
}

func (c Controller) readSettings(ctx context.Context, seen *observation) error {
	name := settingsConfigMapName(seen.Cluster)
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var m corev1.ConfigMap
	err := c.live.Get(ctx, namespacedName(seen.Cluster, name), &m)
	if k8serrors.IsNotFound(err) {
		seen.Problems = append(seen.Problems, fmt.Sprintf("spec.mysqlConfigMapName: expected the ConfigMap %s in namespace %s, found none; "+
			"create it or remove the field", name, seen.Cluster.Namespace))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the ConfigMap %s: %w", name, err)
	}
	seen.settings = m.Data
	return nil
}

// listPods returns the Pods of a cluster by ordinal. The entry of a missing Pod is nil.
func listPods(ctx context.Context, reader client.Reader, cluster *mocov1beta2.MySQLCluster) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var list corev1.PodList
	pods := make([]*corev1.Pod, cluster.InstanceCount())
	err := reader.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels(provisioning.SelectorLabels(cluster)))
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

func readStatefulSet(ctx context.Context, reader client.Reader, cluster *mocov1beta2.MySQLCluster) (*appsv1.StatefulSet, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	u := newUnstructured(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	err := reader.Get(ctx, namespacedName(cluster, cluster.ChildName()), u)
	if k8serrors.IsNotFound(err) {
		return nil, nil
	}
	set := &appsv1.StatefulSet{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, set)
	}
	if err != nil {
		return nil, fmt.Errorf("read the StatefulSet: %w", err)
	}
	return set, nil
}

// observeObjects builds the desired objects and reads the live ones.
func (c Controller) observeObjects(ctx context.Context, seen *observation) error {
	var passwords map[string][]byte
	if seen.secret != nil {
		passwords = seen.secret.Data
	}
	isVersioned := seen.secret != nil && seen.secret.Annotations[mocov1beta2.SecretVersionAnnotation] == mocov1beta2.SecretVersion
	if seen.NeedsPasswords = !isVersioned || len(mysqlusers.MissingPasswordKeys(passwords)) > 0; seen.NeedsPasswords {
		return nil
	}
	running, err := c.readRunningCnf(ctx, seen)
	if err != nil {
		return err
	}
	seen.Desired, err = provisioning.BuildObjects(provisioning.BuildInput{
		Cluster: seen.Cluster, Settings: seen.settings, Passwords: passwords, ExporterImage: c.ExporterImage, StatefulSet: seen.StatefulSet, RunningCnf: running,
	})
	if err != nil {
		seen.Problems = append(seen.Problems, err.Error())
		return nil
	}
	for _, desired := range append(seen.Desired.Objects, seen.Desired.StatefulSet) {
		state, err := c.observeObject(ctx, seen.Cluster, desired)
		if err != nil {
			return err
		}
		seen.Objects = append(seen.Objects, state)
	}
	return c.observeConfigMaps(ctx, seen)
}

// readRunningCnf returns the my.cnf that the Pods use. It returns "" without a StatefulSet, or if the user has no
// settings. The content of a ConfigMap with this name never changes, so reading from the cache is sufficient.
func (c Controller) readRunningCnf(ctx context.Context, seen *observation) (string, error) {
	name := provisioning.ConfigMapInUse(seen.StatefulSet)
	if name == "" || len(seen.settings) == 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	m := newUnstructured(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := c.children.Get(ctx, namespacedName(seen.Cluster, name), m); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read the ConfigMap %s: %w", name, err)
	}
	return provisioning.RunningCnf(m), nil
}

// observeObject reads an object from the cache. If the cached object would have to be applied again, it reads the
// object from the API server, because the cache may be outdated.
func (c Controller) observeObject(ctx context.Context, cluster *mocov1beta2.MySQLCluster, desired *unstructured.Unstructured) (provisioning.ObjectState, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	state := c.applied.stateOf(client.ObjectKeyFromObject(cluster), desired)
	if state.AppliedHash != provisioning.HashContent(desired) {
		return state, nil // The object is applied regardless of the live state.
	}
	readers := []client.Reader{c.children, c.live}
	if desired.GetKind() == "Secret" {
		readers = readers[1:] // Secrets are not cached.
	}
	for _, reader := range readers {
		live := newUnstructured(desired.GroupVersionKind())
		err := reader.Get(ctx, client.ObjectKeyFromObject(desired), live)
		if client.IgnoreNotFound(err) != nil {
			return state, fmt.Errorf("read the %s: %w", describeObject(desired), err)
		}
		state.LiveHash = provisioning.ContentHash{}
		if err == nil {
			state.LiveHash = provisioning.HashContent(live)
		}
		if !state.NeedsApply() {
			break
		}
	}
	return state, nil
}

// observeConfigMaps lists the ConfigMaps that belong to the cluster, and the names of the ConfigMaps that its Pods
// mount.
func (c Controller) observeConfigMaps(ctx context.Context, seen *observation) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.children.List(ctx, list, client.InNamespace(seen.Cluster.Namespace), client.MatchingLabels(provisioning.SelectorLabels(seen.Cluster)))
	if err != nil {
		return fmt.Errorf("list the ConfigMaps: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if strings.HasPrefix(o.GetName(), seen.Cluster.ChildName()+".") && metav1.IsControlledBy(o, seen.Cluster) {
			seen.ConfigMaps = append(seen.ConfigMaps, o)
		}
	}
	for _, p := range seen.pods {
		if p == nil {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap != nil {
				seen.UsedConfigMaps = append(seen.UsedConfigMaps, v.ConfigMap.Name)
			}
		}
	}
	return nil
}

func observedRollout(seen *observation, now time.Time) provisioning.ObservedRollout {
	c := seen.Cluster
	o := provisioning.ObservedRollout{
		Name: c.Name, Offline: c.Spec.Offline, Primary: chosenPrimary(c), ClusteringStopped: c.ClusteringStopped(),
		StoppedInstances: mysqlswitches.HasStoppedInstances(c.Annotations), Forced: c.RolloutForced(),
		// This is the only decision of this controller that depends on a condition. Only clustering queries the
		// servers. While clustering is stopped or cannot reach them, the other fields that it reports keep their
		// values, but the condition does not stay True. The condition can only delay a rollout.
		Healthy: meta.IsStatusConditionTrue(c.Status.Conditions, mocov1beta2.HealthyCondition),
	}
	set := seen.StatefulSet
	o.RevisionKnown = set != nil && set.Status.ObservedGeneration >= set.Generation && set.Status.UpdateRevision != ""
	for _, p := range seen.pods {
		o.Pods = append(o.Pods, podStateOf(p, set, now))
	}
	return o
}

func podStateOf(p *corev1.Pod, set *appsv1.StatefulSet, now time.Time) provisioning.PodState {
	if p == nil {
		return provisioning.PodState{}
	}
	state := provisioning.PodState{
		Exists: true, Terminating: !p.DeletionTimestamp.IsZero(),
		Served:            p.Labels[mocov1beta2.RoleLabel] != "",
		DemotionRequested: p.Annotations[mocov1beta2.DemoteAnnotation] == "true",
	}
	if set != nil && p.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.UpdateRevision {
		// A Pod is outdated if any annotation differs, including those of users and of kubectl rollout restart.
		for name, value := range set.Spec.Template.Annotations {
			state.Outdated = state.Outdated || p.Annotations[name] != value
		}
		state.IsKept = !state.Outdated
	}
	for _, is := range p.Status.Conditions {
		if is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue {
			state.Ready, state.ReadyFor = true, now.Sub(is.LastTransitionTime.Time)
		}
	}
	return state
}

// chosenPrimary returns the ordinal of the primary that clustering has chosen, or None.
func chosenPrimary(cluster *mocov1beta2.MySQLCluster) int {
	if i, chosen := cluster.Status.Primary(); chosen && i < cluster.InstanceCount() {
		return i
	}
	return provisioning.None
}

func namespacedName(cluster *mocov1beta2.MySQLCluster, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: cluster.Namespace, Name: name}
}
