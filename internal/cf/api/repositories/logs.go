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
	// maxLogBytes bounds what is read of one Pod's log.
	maxLogBytes = 4 << 20
	// maxLogReaders bounds the logs that are read at once for one request.
	maxLogReaders = 8
)

// LogLine is one line of an instance's log, with its time in nanoseconds. Kubernetes keeps one log for both outputs.
type LogLine struct {
	At                             int64
	Instance, ProcessType, Payload string
}

// ReadLogs returns the lines of all Pods of an app since a time, read as the caller; tail, unless it is nil, limits the lines
// of each Pod to the last ones.
func (s *Store) ReadLogs(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, since time.Time, tail *int64) ([]LogLine, error) {
	var pods corev1.PodList
	if err := caller.Client.List(ctx, &pods, client.InNamespace(app.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app.Name}); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	lines := make([][]LogLine, len(pods.Items))
	var readers errgroup.Group
	readers.SetLimit(maxLogReaders)
	for i := range pods.Items {
		readers.Go(func() (err error) {
			lines[i], err = readPodLog(ctx, caller, &pods.Items[i], since, tail)
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
	return slices.Concat(lines...), nil
}

// readPodLog returns the lines of the running container, and before them those of the container that it replaced, which
// explain why that one crashed.
func readPodLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, since time.Time, tail *int64) ([]LogLine, error) {
	options := &corev1.PodLogOptions{Container: eiriniv1.ApplicationContainer, Timestamps: true, TailLines: tail, LimitBytes: new(int64(maxLogBytes))}
	if since.After(time.Unix(0, 0)) {
		options.SinceTime = new(metav1.NewTime(since))
	}
	var previous []LogLine
	if hasRestartedContainer(pod) {
		ofPrevious := options.DeepCopy()
		ofPrevious.Previous = true
		// The kubelet may have removed the previous container meanwhile, so an error hides nothing that could be read.
		previous, _ = readContainerLog(ctx, caller, pod, ofPrevious)
	}
	current, err := readContainerLog(ctx, caller, pod, options)
	return append(previous, current...), err
}

// hasRestartedContainer reports whether a container runs where another has ended. While none runs, the log that Kubernetes
// returns is that of the last one anyway.
func hasRestartedContainer(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil && c.LastTerminationState.Terminated != nil
	})
}

func readContainerLog(ctx context.Context, caller *authorization.Caller, pod *corev1.Pod, options *corev1.PodLogOptions) ([]LogLine, error) {
	stream, err := caller.Core.Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	var lines []LogLine
	scanner := bufio.NewScanner(io.LimitReader(stream, maxLogBytes))
	scanner.Buffer(nil, maxLogBytes)
	for scanner.Scan() {
		stamp, text, _ := strings.Cut(scanner.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			continue
		}
		lines = append(lines, LogLine{At: at.UnixNano(), Instance: instanceIndex(pod), ProcessType: pod.Labels[korifiv1alpha1.ProcessTypeLabel], Payload: text})
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	return lines, nil
}

func instanceIndex(pod *corev1.Pod) string {
	if i, err := strconv.Atoi(pod.Labels[appsv1.PodIndexLabel]); err == nil {
		return strconv.Itoa(i)
	}
	return "0"
}
