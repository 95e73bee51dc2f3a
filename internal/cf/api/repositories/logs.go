// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

const (
	// maxLogReaders bounds the logs that are read at once for one request.
	maxLogReaders = 4
	// readBytesOfApp bounds what is read for one request, and with it the part of each Pod.
	readBytesOfApp, maxReadBytes, minReadBytes = 64 << 20, 4 << 20, 256 << 10
)

// ReadLogs returns the lines of all Pods of an app that are in a window, read as the caller.
func (s *Store) ReadLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, window LogWindow) ([]LogLine, error) {
	var pods corev1.PodList
	if err := caller.Client.List(ctx, &pods, client.InNamespace(app.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app.Name}); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	collector := &logCollector{window: window}
	options := logOptions(window, len(pods.Items))
	var readers errgroup.Group
	readers.SetLimit(maxLogReaders)
	for i := range pods.Items {
		readers.Go(func() error {
			err := readPodLog(ctx, caller, &pods.Items[i], options, collector)
			// A Pod whose container has not started yet has no log, which is no reason to hide the others'.
			if k8serrors.IsBadRequest(err) || k8serrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	return collector.sorted(), nil
}

// logOptions says which part of each container's log is read.
func logOptions(window LogWindow, pods int) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{
		Container: eiriniv1.ApplicationContainer, Timestamps: true, LimitBytes: new(int64(min(max(readBytesOfApp/max(pods, 1), minReadBytes), maxReadBytes))),
	}
	if since := time.Unix(0, max(0, window.From)); since.After(time.Unix(0, 0)) {
		options.SinceTime = new(metav1.NewTime(since))
	}
	// Where the first lines are wanted, or the last ones before some time, the last ones of each Pod are not enough.
	if window.Descending && window.Until == math.MaxInt64 {
		options.TailLines = new(int64(window.Limit))
	}
	return options
}

// readPodLog reads the log of the running container, and before it that of the container that it replaced, which explains why
// that one crashed.
func readPodLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, options *corev1.PodLogOptions, into *logCollector) error {
	if hasRestartedContainer(pod) {
		ofPrevious := options.DeepCopy()
		ofPrevious.Previous = true
		// The kubelet may have removed the previous container meanwhile, so an error hides nothing that could be read.
		_ = readContainerLog(ctx, caller, pod, ofPrevious, into)
	}
	return readContainerLog(ctx, caller, pod, options, into)
}

// hasRestartedContainer reports whether a container runs where another has ended. While none runs, the log that Kubernetes
// returns is that of the last one anyway.
func hasRestartedContainer(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil && c.LastTerminationState.Terminated != nil
	})
}

func readContainerLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, options *corev1.PodLogOptions, into *logCollector) error {
	stream, err := caller.Core.Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	return into.readLines(io.LimitReader(stream, *options.LimitBytes), instanceIndex(pod), pod.Labels[korifiv1alpha1.ProcessTypeLabel])
}

func instanceIndex(pod *corev1.Pod) string {
	if i, err := strconv.Atoi(pod.Labels[appsv1.PodIndexLabel]); err == nil {
		return strconv.Itoa(i)
	}
	return "0"
}
