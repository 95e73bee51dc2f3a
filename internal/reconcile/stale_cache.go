// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// StaleCacheRetry is when the cache is asked again for an object whose newer version is on its way to it.
	StaleCacheRetry = 5 * time.Millisecond
	// staleCacheLimit is for how long a cached version may be taken for outdated. A hub that was restored from a backup
	// serves lower versions than before, and would otherwise be waited for without an end.
	staleCacheLimit = 10 * time.Second
)

// versionTracker knows, by request, versions that must not be decided on. The zero value is ready.
type versionTracker struct{ byRequest sync.Map }

type knownVersions struct {
	// lost is a version that lost a race or was replaced; written is the one that replaced it, empty if unknown.
	lost, written string
	at            time.Time
}

func (t *versionTracker) noteWritten(req ctrl.Request, replaced, written string, now time.Time) {
	t.byRequest.Store(req, knownVersions{lost: replaced, written: written, at: now})
}

func (t *versionTracker) noteLost(req ctrl.Request, lost string, now time.Time) {
	t.byRequest.Store(req, knownVersions{lost: lost, at: now})
}

func (t *versionTracker) forget(req ctrl.Request) { t.byRequest.Delete(req) }

// isOutdated reports whether a newer version than this one is known.
func (t *versionTracker) isOutdated(req ctrl.Request, version string, now time.Time) bool {
	value, ok := t.byRequest.Load(req)
	if !ok {
		return false
	}
	known, _ := value.(knownVersions)
	if now.Sub(known.at) >= staleCacheLimit {
		t.forget(req)
		return false
	}
	if version == known.lost {
		return true
	}
	// Several controllers write one object, so versions between the one that was replaced and the one that was written pass
	// through the cache too. They are comparable since Kubernetes 1.35 (KEP-5504), and in etcd always were.
	order, err := resourceversion.CompareResourceVersion(version, known.written)
	return err == nil && order < 0
}
