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
	// maxLogReaders limits the concurrent log reads of one request.
	maxLogReaders = 4
	// readBytesOfApp limits the bytes that one request reads. Its share for each Pod is between minReadBytes and
	// maxReadBytes.
	readBytesOfApp, maxReadBytes, minReadBytes = 64 << 20, 4 << 20, 256 << 10
)

// AwaitLogs returns when it is time to read the logs of an app. A client that follows logs polls for new lines without
// a pause.
func (s *Store) AwaitLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, window LogWindow) {
	s.followers.awaitTurn(ctx, s.stopped, logLook{caller.Name, app.UID, window})
}

// ReadLogs returns the lines of a window from all Pods of an app. They are read as the caller, or were read as another
// caller a moment ago, if a new review shows that this caller may read the same logs.
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

// followLogs reads a round for all followers of an app, or uses a round of another follower.
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

// readRound reads a round with the credentials of the first caller, and stops when that caller disconnects.
func (s *Store) readRound(ctx context.Context, caller *authorization.Caller, app types.UID, pods []corev1.Pod, round *logRound) (lines []LogLine, err error) {
	isComplete := false
	defer func() { round.finish(lines, isComplete) }()
	if lines, isComplete, err = readPodLogs(ctx, caller, pods, round.window()); err != nil {
		s.followers.abandonRound(app, round)
	}
	return lines, err
}

// awaitRound waits for the round of another caller, and reports whether this caller may read the same logs.
func awaitRound(ctx context.Context, caller *authorization.Caller, namespace string, round *logRound) (isAllowed bool, err error) {
	select {
	case <-round.done:
		return caller.MayReadLogs(ctx, namespace)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// readPodLogs reads the logs of Pods. isComplete is true if it could read and keep all lines of the window.
func readPodLogs(ctx context.Context, caller *authorization.Caller, pods []corev1.Pod, window LogWindow) (lines []LogLine, isComplete bool, err error) {
	collector := &logCollector{window: window}
	options := logOptions(window, len(pods))
	var readers errgroup.Group
	readers.SetLimit(maxLogReaders)
	for i := range pods {
		readers.Go(func() error {
			err := readPodLog(ctx, caller, &pods[i], options, collector)
			// A Pod whose container has not started has no log yet. The logs of the other Pods are still returned.
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

// logOptions returns the options that select the part of each container's log to read.
func logOptions(window LogWindow, pods int) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{
		Container: eiriniv1.ApplicationContainer, Timestamps: true, LimitBytes: new(int64(min(max(readBytesOfApp/max(pods, 1), minReadBytes), maxReadBytes))),
	}
	if since := time.Unix(0, max(0, window.From)); since.After(time.Unix(0, 0)) {
		options.SinceTime = new(metav1.NewTime(since))
	}
	// The last lines of each Pod are only sufficient for the last lines of a window without an end.
	if window.Descending && window.Until == math.MaxInt64 {
		options.TailLines = new(int64(window.Limit))
	}
	return options
}

// readPodLog reads the log of the running container. Before that, it reads the log of the container that it replaced,
// which explains a crash.
func readPodLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, options *corev1.PodLogOptions, into *logCollector) error {
	if hasRestartedContainer(pod) {
		ofPrevious := options.DeepCopy()
		ofPrevious.Previous = true
		// The kubelet may have removed the previous container, so this error is ignored.
		_ = readContainerLog(ctx, caller, pod, ofPrevious, into)
	}
	return readContainerLog(ctx, caller, pod, options, into)
}

// hasRestartedContainer reports whether a running container has replaced another. While no container runs, Kubernetes
// returns the log of the last one anyway.
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
