// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

const (
	// maxLogReaders limits the concurrent log reads of a request.
	maxLogReaders = 4
	// readBytesOfApp is divided among an app's Pods to limit the bytes that a request reads. Each Pod's share is
	// between minReadBytes and maxReadBytes.
	readBytesOfApp, maxReadBytes, minReadBytes = 64 << 20, 4 << 20, 256 << 10
)

// AwaitLogs waits until the logs of an app should be read again. Without it, a client that follows logs would poll
// without a pause.
func (s *Store) AwaitLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, window LogWindow) {
	s.followers.awaitTurn(ctx, s.stopped, logLook{caller.Name, app.UID, window})
}

// ReadLogs returns the lines in a window from all Pods of an app. They are read as the caller. If another caller has
// just read them, they are shared after a review shows that this caller may read the same logs.
func (s *Store) ReadLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, window LogWindow) ([]LogLine, error) {
	var pods corev1.PodList
	err := caller.Client.List(ctx, &pods, client.InNamespace(app.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app.Name})
	var lines []LogLine
	switch {
	case err != nil:
	case window.isFollowing() && len(pods.Items) > 0:
		lines, err = s.followLogs(ctx, caller, app, pods.Items, window)
	default:
		lines, _, err = readPodLogs(ctx, caller, pods.Items, window)
	}
	if err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	s.followers.noteAnswer(logLook{caller.Name, app.UID, window}, len(lines))
	return lines, nil
}

// followLogs reads a round of logs for all callers that follow an app, or uses the round that another caller has read.
func (s *Store) followLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, pods []corev1.Pod, window LogWindow) ([]LogLine, error) {
	round, isOwn := s.followers.joinRound(app.UID, pods, window)
	if isOwn {
		lines, err := s.readRound(ctx, caller, app.UID, pods, round)
		if err != nil || round.from == window.From {
			return lines[:min(len(lines), window.Limit)], err
		}
	} else {
		isAllowed, err := awaitRound(ctx, caller, app.Namespace, round)
		if err != nil {
			return nil, err
		}
		if !isAllowed {
			// The caller may still be allowed to read the logs of some Pods, so each Pod's log is requested.
			lines, _, err := readPodLogs(ctx, caller, pods, window)
			return lines, err
		}
	}
	if lines, ok := round.selectLines(window); ok {
		return lines, nil
	}
	lines, _, err := readPodLogs(ctx, caller, pods, window)
	return lines, err
}

// readRound reads a round with the credentials of the caller that started it, and stops when that caller disconnects.
func (s *Store) readRound(ctx context.Context, caller *authorization.Caller, app types.UID, pods []corev1.Pod, round *logRound) (lines []LogLine, err error) {
	isComplete := false
	defer func() { round.finish(lines, isComplete) }()
	if lines, isComplete, err = readPodLogs(ctx, caller, pods, round.window()); err != nil {
		s.followers.abandonRound(app, round)
	}
	return lines, err
}

// awaitRound waits for another caller's round, and reports whether this caller may read the same logs.
func awaitRound(ctx context.Context, caller *authorization.Caller, namespace string, round *logRound) (isAllowed bool, err error) {
	select {
	case <-round.done:
		return caller.MayReadLogs(ctx, namespace)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// readPodLogs reads the logs of the Pods. isComplete is true if all lines in the window were read and kept.
func readPodLogs(ctx context.Context, caller *authorization.Caller, pods []corev1.Pod, window LogWindow) (lines []LogLine, isComplete bool, err error) {
	collector := &logCollector{window: window}
	options := logOptions(window, len(pods))
	var readers errgroup.Group
	readers.SetLimit(maxLogReaders)
	for i := range pods {
		readers.Go(func() error {
			err := readPodLog(ctx, caller, &pods[i], options, collector)
			// A Pod whose container has not started has no log. The logs of the other Pods are still returned.
			if k8serrors.IsBadRequest(err) || k8serrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return nil, false, err
	}
	return collector.sorted(), !collector.isPartial, nil
}

// logOptions returns the options for reading the needed part of each container's log.
func logOptions(window LogWindow, pods int) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{
		Container: eiriniv1.ApplicationContainer, Timestamps: true, LimitBytes: new(int64(min(max(readBytesOfApp/max(pods, 1), minReadBytes), maxReadBytes))),
	}
	if since := time.Unix(0, max(0, window.From)); since.After(time.Unix(0, 0)) {
		options.SinceTime = new(metav1.NewTime(since))
	}
	// Reading only the last lines of each Pod is sufficient only if the window selects the last lines and has no end.
	if window.Descending && window.Until == math.MaxInt64 {
		options.TailLines = new(int64(window.Limit))
	}
	return options
}

// readPodLog reads the log of the running container. If that container has replaced another one, it first reads the log
// of the replaced container, which explains a crash.
func readPodLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, options *corev1.PodLogOptions, into *logCollector) error {
	if hasRestartedContainer(pod) {
		ofPrevious := options.DeepCopy()
		ofPrevious.Previous = true
		// The error is ignored, because the kubelet may have removed the previous container.
		_ = readContainerLog(ctx, caller, pod, ofPrevious, into)
	}
	return readContainerLog(ctx, caller, pod, options, into)
}

// hasRestartedContainer reports whether the running container has replaced another one. While no container runs,
// Kubernetes returns the log of the last one anyway.
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
	limited := &io.LimitedReader{R: stream, N: *options.LimitBytes}
	processType := cmp.Or(pod.Labels[korifiv1alpha1.ProcessTypeLabel], pod.Labels[torporv1alpha1.LeftServicesLabel])
	err = into.readLines(limited, instanceIndex(pod), processType)
	if limited.N <= 0 {
		into.notePartial()
	}
	return err
}

func instanceIndex(pod *corev1.Pod) string {
	if i, err := strconv.Atoi(pod.Labels[appsv1.PodIndexLabel]); err == nil {
		return strconv.Itoa(i)
	}
	return "0"
}
