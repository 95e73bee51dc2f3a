// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// podHistory records all observed changes to an app's Pods and LRPs.
type podHistory struct {
	mu   sync.Mutex
	pods map[types.UID]string // the revision of each existing Pod
	// overlap is the total time during which Pods of more than one revision existed. since is the start of the current
	// overlap.
	overlap time.Duration
	since   time.Time
	most    int
	// ready holds the Pods that are ready and not terminating. alive holds the Pods that are not terminating.
	ready, alive         map[types.UID]bool
	leastReady, inFlight int
	lrps                 map[types.UID]string // the names of all LRPs that ever existed
}

// watchHistory records the history until the test ends.
func (a *app) watchHistory(t *testing.T) *podHistory {
	t.Helper()
	c, err := client.NewWithWatch(a.Config, client.Options{Scheme: a.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	h := &podHistory{pods: map[types.UID]string{}, lrps: map[types.UID]string{}, ready: map[types.UID]bool{}, alive: map[types.UID]bool{}, leastReady: -1}
	in, of := client.InNamespace(a.namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: a.name}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &eiriniv1.LRPList{}} {
		w, err := c.Watch(context.WithoutCancel(t.Context()), list, in, of)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		go func() {
			for e := range w.ResultChan() {
				h.recordEvent(e)
			}
		}()
	}
	return h
}

func (h *podHistory) recordEvent(e watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := e.Object.(type) {
	case *eiriniv1.LRP:
		h.lrps[o.UID] = o.Name
	case *corev1.Pod:
		if h.pods[o.UID] = o.Labels[korifiv1alpha1.VersionLabel]; e.Type == watch.Deleted {
			delete(h.pods, o.UID)
		}
		h.recordPod(o, e.Type == watch.Deleted)
		h.updateOverlap(time.Now())
	}
}

// recordPod updates the minimum of ready Pods, from the first deletion on, and the maximum of Pods that are not ready.
func (h *podHistory) recordPod(pod *corev1.Pod, gone bool) {
	if gone = gone || !pod.DeletionTimestamp.IsZero(); gone {
		delete(h.alive, pod.UID)
		delete(h.ready, pod.UID)
	} else {
		h.alive[pod.UID] = true
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				h.ready[pod.UID] = true
			}
		}
	}
	h.inFlight = max(h.inFlight, len(h.alive)-len(h.ready))
	switch {
	case gone && h.leastReady < 0:
		h.leastReady = len(h.ready) // All Pods have been observed by the first deletion. Earlier counts may be too low.
	case gone:
		h.leastReady = min(h.leastReady, len(h.ready))
	}
}

// countPods returns the minimum of ready Pods and the maximum of Pods that were not ready. Terminating Pods do not
// count. If no Pod was deleted, all Pods that became ready are still ready.
func (h *podHistory) countPods() (leastReady, inFlight int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leastReady < 0 {
		return len(h.ready), h.inFlight
	}
	return h.leastReady, h.inFlight
}

func (h *podHistory) updateOverlap(now time.Time) {
	revisions := map[string]bool{}
	for _, r := range h.pods {
		revisions[r] = true
	}
	h.most = max(h.most, len(revisions))
	switch both := len(revisions) > 1; {
	case both && h.since.IsZero():
		h.since = now
	case !both && !h.since.IsZero():
		h.overlap, h.since = h.overlap+now.Sub(h.since), time.Time{}
	}
}

// measureOverlap returns the maximum number of revisions that had Pods at the same time, and for how long there was
// more than one.
func (h *podHistory) measureOverlap() (most int, overlap time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.updateOverlap(now); !h.since.IsZero() {
		return h.most, h.overlap + now.Sub(h.since)
	}
	return h.most, h.overlap
}

// countLRPNames returns the names of all LRPs that ever existed, with the number of objects that had each name.
func (h *podHistory) countLRPNames() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]int{}
	for _, name := range h.lrps {
		all[name]++
	}
	return all
}
