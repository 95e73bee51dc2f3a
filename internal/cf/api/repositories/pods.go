// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	// maxLogBytes bounds what is read of one Pod's log.
	maxLogBytes = 4 << 20
	// maxLogReaders is how many logs are read at once for one request.
	maxLogReaders = 8
	// InstanceResourceType is what a caller calls a Pod.
	InstanceResourceType = "Instance"
)

// DeleteInstance deletes the Pod of one instance of a process's running revision, as the caller; another one takes its place.
func (s *Store) DeleteInstance(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess, index string) error {
	var pods corev1.PodList
	if err := caller.Client.List(ctx, &pods, client.InNamespace(app.Namespace), client.MatchingLabels{
		korifiv1alpha1.ProcessGUIDLabel: process.Name, korifiv1alpha1.VersionLabel: revision.FormatRevision(runningRevision(app, process)), appsv1.PodIndexLabel: index,
	}); err != nil {
		return apierrors.FromError(err, InstanceResourceType)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if err := caller.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil {
			return apierrors.FromError(err, InstanceResourceType)
		}
		return nil
	}
	return apierrors.NewNotFound(InstanceResourceType)
}

// runningRevision returns the revision whose instances people see: the app's, or the one that came back when its deployment
// was cancelled.
func runningRevision(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	current, lastStop, _ := revision.FromApp(app)
	deployment := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	cancelled := deployment != "" && app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] == deployment
	var existing []int64
	for _, r := range process.Status.Revisions {
		if r.Desired > 0 {
			existing = append(existing, r.Revision)
		}
	}
	return revision.Running(current, lastStop, cancelled, existing)
}

// ListEvents is what Kubernetes has told of an app, as far as the caller may read it.
func (s *Store) ListEvents(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) ([]corev1.Event, error) {
	var events corev1.EventList
	err := caller.Client.List(ctx, &events, client.InNamespace(app.Namespace), client.MatchingFields{"involvedObject.name": app.Name})
	switch {
	case k8serrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, apierrors.FromError(err, "Event")
	}
	return events.Items, nil
}

// GetEnvironment is an app's own environment, read as the caller.
func (s *Store) GetEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) (map[string]string, error) {
	vars := map[string]string{}
	if app.Spec.EnvSecretName == "" {
		return vars, nil
	}
	secret := &corev1.Secret{}
	err := caller.Client.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: app.Spec.EnvSecretName}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	for name, value := range secret.Data {
		vars[name] = string(value)
	}
	return vars, nil
}

// SetEnvironment changes an app's environment, which its next revision gets; nil takes a variable away.
func (s *Store) SetEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, vars map[string]*string) error {
	if app.Spec.EnvSecretName == "" {
		changed, err := s.patchApp(ctx, caller, app, jsonObject{"spec": jsonObject{"envSecretName": app.Name + "-env"}})
		if err != nil {
			return err
		}
		app = changed
	}
	secret := &corev1.Secret{ObjectMeta: ownedByApp(app, app.Spec.EnvSecretName)}
	if err := client.IgnoreAlreadyExists(caller.Client.Create(ctx, secret)); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	data := jsonObject{}
	for name, value := range vars {
		data[name] = nil
		if value != nil {
			data[name] = []byte(*value)
		}
	}
	if err := patchAsCaller(ctx, caller, secret, jsonObject{"data": data}); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	return nil
}

// ReadLogs are those of all Pods of an app since a time, read as the caller; with last, only so many of the last ones of each.
func (s *Store) ReadLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, since time.Time, last *int64) ([]presenter.Line, error) {
	var pods corev1.PodList
	if err := caller.Client.List(ctx, &pods, client.InNamespace(app.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app.Name}); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	found, wrong := make([][]presenter.Line, len(pods.Items)), make([]error, len(pods.Items))
	slots := make(chan struct{}, maxLogReaders)
	var group sync.WaitGroup
	for i := range pods.Items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			found[i], wrong[i] = readPodLog(ctx, caller, &pods.Items[i], since, last)
		})
	}
	group.Wait()
	var all []presenter.Line
	for i := range found {
		// A Pod whose container has not started yet has no log, which is no reason to hide the others'.
		if wrong[i] != nil && !k8serrors.IsBadRequest(wrong[i]) && !k8serrors.IsNotFound(wrong[i]) {
			return nil, apierrors.FromError(wrong[i], AppResourceType)
		}
		all = append(all, found[i]...)
	}
	return all, nil
}

// readPodLog are those of the container that runs, and before them those of the one that ended before it: a crash is told there.
func readPodLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, since time.Time, last *int64) ([]presenter.Line, error) {
	o := &corev1.PodLogOptions{Container: eiriniv1.ApplicationContainer, Timestamps: true, TailLines: last, LimitBytes: new(int64(maxLogBytes))}
	if since.After(time.Unix(0, 0)) {
		o.SinceTime = new(metav1.NewTime(since))
	}
	var before []presenter.Line
	if hasRestartedContainer(pod) {
		of := o.DeepCopy()
		of.Previous = true
		// It may have been cleared away meanwhile.
		before, _ = readContainerLog(ctx, caller, pod, of)
	}
	now, err := readContainerLog(ctx, caller, pod, o)
	return append(before, now...), err
}

// hasRestartedContainer says that a container runs where another has ended. While none runs, Kubernetes shows the log of the last one.
func hasRestartedContainer(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil && c.LastTerminationState.Terminated != nil
	})
}

func readContainerLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, o *corev1.PodLogOptions) ([]presenter.Line, error) {
	stream, err := caller.Core.Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var all []presenter.Line
	in := bufio.NewScanner(io.LimitReader(stream, maxLogBytes))
	in.Buffer(nil, maxLogBytes)
	for in.Scan() {
		stamp, text, _ := strings.Cut(in.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			continue
		}
		all = append(all, presenter.Line{At: at.UnixNano(), Instance: instanceIndex(pod), ProcessType: pod.Labels[korifiv1alpha1.ProcessTypeLabel], Payload: text})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	return all, nil
}

func instanceIndex(pod *corev1.Pod) string {
	if i, err := strconv.Atoi(pod.Labels[appsv1.PodIndexLabel]); err == nil {
		return strconv.Itoa(i)
	}
	return "0"
}
