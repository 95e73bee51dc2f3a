// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// StaleCacheRetry is the delay before the cache is read again for an object whose newer version has not arrived.
	StaleCacheRetry = 5 * time.Millisecond
	// staleRetryShare is the divisor of the elapsed wait that gives the next interval.
	staleRetryShare = 4
	// staleCacheLimit is how long a cached version may be considered outdated. A hub that was restored from a backup
	// serves lower versions than before, and the wait for a newer one would never end.
	staleCacheLimit = 10 * time.Second
)

// versionTracker stores, for each request, versions that must not be decided on. The zero value is ready.
type versionTracker struct {
	byRequest sync.Map
	// staleSince is the time since which all passes of a request have found the cache behind.
	staleSince sync.Map
}

type knownVersions struct {
	// lost is a version that lost a race or was replaced; written is its successor, empty if unknown.
	lost, written string
	at            time.Time
	// isRefusedAgain is true if lost was refused although it should have been replaced long ago: only the queue's
	// back-off is left.
	isRefusedAgain bool
}

// staleRetry grows with the wait, so that a late cache is noticed soon and a persistent conflict costs little.
func staleRetry(waited time.Duration) time.Duration {
	return max(StaleCacheRetry, waited/staleRetryShare)
}

func (t *versionTracker) noteWritten(req ctrl.Request, replaced, written string, now time.Time) {
	t.byRequest.Store(req, knownVersions{lost: replaced, written: written, at: now})
}

// noteLost reports whether this version was refused for the first time.
func (t *versionTracker) noteLost(req ctrl.Request, lost string, now time.Time) (isFirst bool) {
	known := t.find(req)
	isFirst = known.lost != lost || known.written != ""
	t.byRequest.Store(req, knownVersions{lost: lost, at: now, isRefusedAgain: !isFirst})
	return isFirst
}

// noteStale returns how long all passes have found the cache behind.
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

// awaitNewer returns when to read again if a newer version is known to exist, and otherwise zero.
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
	// Several controllers write one object, so versions between the replaced one and the written one also pass
	// through the cache. They are comparable since Kubernetes 1.35 (KEP-5504), and always were in etcd.
	order, err := resourceversion.CompareResourceVersion(version, k.written)
	return err == nil && order < 0
}
