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
	// usageTimeout is what stats wait for figures that they can do without.
	usageTimeout = 2 * time.Second
	// usagePause is how long nobody asks after figures were not served.
	usagePause = 30 * time.Second
)

// InstanceKey is an instance of a process.
type InstanceKey struct {
	Revision int64
	Index    int32
}

// InstanceUsage is what an instance uses: CPU in cores, and memory in bytes.
type InstanceUsage struct {
	MeasuredAt time.Time
	CPU        float64
	Memory     int64
}

// podMetrics is what is read of the PodMetrics of metrics.k8s.io.
type podMetrics struct {
	metav1.ObjectMeta `json:"metadata"`
	Timestamp         metav1.Time `json:"timestamp"`
	Containers        []struct {
		Name  string              `json:"name"`
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// usageAvailability remembers that metrics.k8s.io is not served, so that not each look at an app asks in vain.
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

// noteError pauses after errors that say nothing about the caller: what one caller may not see, others may.
func (a *usageAvailability) noteError(err error) {
	if k8serrors.IsNotFound(err) || k8serrors.IsServiceUnavailable(err) || errors.Is(err, context.DeadlineExceeded) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.until = a.clock.Now().Add(usagePause)
	}
}

// MeasureInstances returns what the instances of a process use, read as the caller; nothing where that is not measured, or not for
// this caller to see.
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

// parseUsage reads the usage of an app's container, which is what its limits are for; ok is false for what is no instance.
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
