// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// StaleCacheRetry is the shortest delay before the cache is read again for an object whose newer version has not
	// arrived.
	StaleCacheRetry = 5 * time.Millisecond
	// staleRetryShare is the divisor of the time waited so far that gives the next interval.
	staleRetryShare = 4
	// staleCacheLimit is the longest time for which a cached version is considered outdated. A hub that was restored
	// from a backup serves lower versions than before, so waiting for a newer one would never end.
	staleCacheLimit = 10 * time.Second
)

// versionTracker stores, for each request, the versions that are known to be outdated. The zero value is ready to
// use.
type versionTracker struct {
	byRequest sync.Map
	// staleSince maps a request to the time of the first of its consecutive passes that found the cache behind the API
	// server.
	staleSince sync.Map
}

type knownVersions struct {
	// lost is a version on which a write failed with a conflict, or that a write replaced. written is the version after
	// the successful write; it is empty after a conflict.
	lost, written string
	at            time.Time
	// isRefusedAgain is true after a second conflict on the version lost: passes no longer wait for a newer version,
	// and only the queue's back-off applies.
	isRefusedAgain bool
}

// staleRetry returns the next interval. It grows with the time waited, so that a persistent conflict costs little.
func staleRetry(waited time.Duration) time.Duration {
	return max(StaleCacheRetry, waited/staleRetryShare)
}

func (t *versionTracker) noteWritten(req ctrl.Request, replaced, written string, now time.Time) {
	t.byRequest.Store(req, knownVersions{lost: replaced, written: written, at: now})
}

// noteLost records a conflict, and reports whether it is the first one on this version.
func (t *versionTracker) noteLost(req ctrl.Request, lost string, now time.Time) (isFirst bool) {
	known := t.find(req)
	isFirst = known.lost != lost || known.written != ""
	t.byRequest.Store(req, knownVersions{lost: lost, at: now, isRefusedAgain: !isFirst})
	return isFirst
}

// noteStale records a pass that found the cache behind the API server, and returns the time since the first of the
// consecutive passes that did.
func (t *versionTracker) noteStale(req ctrl.Request, now time.Time) time.Duration {
	since, _ := t.staleSince.LoadOrStore(req, now)
	began, _ := since.(time.Time)
	return now.Sub(began)
}

func (t *versionTracker) noteFresh(req ctrl.Request) { t.staleSince.Delete(req) }

func (t *versionTracker) forget(req ctrl.Request) {
	t.byRequest.Delete(req)
	t.staleSince.Delete(req)
}

func (t *versionTracker) find(req ctrl.Request) knownVersions {
	value, _ := t.byRequest.Load(req)
	known, _ := value.(knownVersions)
	return known
}

// awaitNewer returns the delay until the next read if a newer version is known to exist, and otherwise zero.
func (t *versionTracker) awaitNewer(req ctrl.Request, version string, now time.Time) time.Duration {
	known := t.find(req)
	waited := now.Sub(known.at)
	if known.lost == "" || known.isRefusedAgain || waited >= staleCacheLimit || !known.isNewerThan(version) {
		return 0
	}
	return staleRetry(waited)
}

func (k knownVersions) isNewerThan(version string) bool {
	if version == k.lost {
		return true
	}
	// Several controllers write one object, so the cache may also show versions between the replaced one and the
	// written one. Versions are comparable since Kubernetes 1.35 (KEP-5504), and in earlier releases if they come from
	// etcd.
	order, err := resourceversion.CompareResourceVersion(version, k.written)
	return err == nil && order < 0
}
