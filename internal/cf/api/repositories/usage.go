// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	// usageTimeout limits the time that a request for stats waits for the usage, which is optional.
	usageTimeout = 2 * time.Second
	// usagePause is the time for which the metrics API is not called after it was unavailable.
	usagePause = 30 * time.Second
)

// InstanceKey identifies an instance of a process.
type InstanceKey struct {
	Revision int64
	Index    int32
}

// InstanceUsage is the usage of an instance. CPU is in cores, and memory is in bytes.
type InstanceUsage struct {
	MeasuredAt time.Time
	CPU        float64
	Memory     int64
}

// podMetrics holds the needed fields of a metrics.k8s.io PodMetrics.
type podMetrics struct {
	metav1.ObjectMeta `json:"metadata"`
	Timestamp         metav1.Time `json:"timestamp"`
	Containers        []struct {
		Name  string              `json:"name"`
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// usageAvailability remembers that metrics.k8s.io is unavailable. During usagePause, requests for the stats of apps do
// not call it again.
type usageAvailability struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	until time.Time
}

func (a *usageAvailability) isPaused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clock.Now().Before(a.until)
}

// noteError pauses requests after an error that does not depend on the caller. A denial for one caller does not affect
// other callers.
func (a *usageAvailability) noteError(err error) {
	if k8serrors.IsNotFound(err) || k8serrors.IsServiceUnavailable(err) || errors.Is(err, context.DeadlineExceeded) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.until = a.clock.Now().Add(usagePause)
	}
}

// MeasureInstances returns the usage of a process's instances, read as the caller. It returns nothing if the usage is
// not measured, or if the caller may not read it.
func (s *Store) MeasureInstances(ctx context.Context, caller *authorization.Caller, p *korifiv1alpha1.CFProcess) map[InstanceKey]InstanceUsage {
	if s.usage.isPaused() {
		return nil
	}
	askCtx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(authorization.PodMetricsKind())
	err := caller.Client.List(askCtx, list, client.InNamespace(p.Namespace), client.MatchingLabels{korifiv1alpha1.ProcessGUIDLabel: p.Name})
	if err != nil {
		if ctx.Err() == nil {
			s.usage.noteError(err)
		}
		return nil
	}
	measured := map[InstanceKey]InstanceUsage{}
	for i := range list.Items {
		if key, usage, ok := parseUsage(&list.Items[i]); ok {
			measured[key] = usage
		}
	}
	return measured
}

// parseUsage reads the usage of the app's container, to which the limits apply. ok is false if the Pod is not an app
// instance.
func parseUsage(o *unstructured.Unstructured) (key InstanceKey, usage InstanceUsage, ok bool) {
	var found podMetrics
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &found) != nil {
		return key, usage, false
	}
	index, err := strconv.ParseInt(found.Labels[appsv1.PodIndexLabel], 10, 32)
	if err != nil {
		return key, usage, false
	}
	for _, c := range found.Containers {
		if c.Name == eiriniv1.ApplicationContainer {
			key = InstanceKey{Revision: revision.ParseVersion(found.Labels[korifiv1alpha1.VersionLabel]), Index: int32(index)}
			return key, InstanceUsage{MeasuredAt: found.Timestamp.Time, CPU: c.Usage.Cpu().AsApproximateFloat64(), Memory: c.Usage.Memory().Value()}, true
		}
	}
	return key, usage, false
}
