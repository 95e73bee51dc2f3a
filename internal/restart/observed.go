// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"cmp"
	"slices"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// UnknownRevision is that of an LRP or a Pod whose version is no revision. It is older than every other.
const UnknownRevision = -1

// Observed is everything that Decide looks at of one process.
type Observed struct {
	Now time.Time
	// Deleted says that the process or its app is being deleted.
	Deleted bool
	// ProcessGUID is the name of the CFProcess.
	ProcessGUID string
	// App is what is wanted.
	App App
	// Desired is how many instances are wanted while the app is started.
	Desired int32
	// NoDroplet says why there is nothing to run; empty when there is an image.
	NoDroplet string
	// NameTaken says that an object that is not the process's has the name that the current revision needs.
	NameTaken bool
	// LRPs are those that the process owns, in any order.
	LRPs []LRP
	// Pods are the process's, one entry for each revision that has any, whether or not its LRP is there.
	Pods []Pods
}

// App is what an app wants of its processes.
type App struct {
	Started bool
	// Revision and LastStop are as RevisionOf reads them; Unreadable says why it cannot.
	Revision, LastStop int64
	Unreadable         string
	// Overlap lets a new revision start before the old one is gone; DrainTimeout does so after that time, 0 never.
	Overlap      bool
	DrainTimeout time.Duration
	// Rollout is how a deployment goes on.
	Rollout Rollout
}

// Rollout is how a deployment goes on. The zero value is rolling, one instance at a time.
type Rollout struct {
	// MaxInFlight is how many instances may be started before others are stopped; 0 means 1.
	MaxInFlight int32
	// CanaryPercent, if it is more than 0, holds the new revision at this share of the instances.
	CanaryPercent int32
	// Cancelled takes the new revision back.
	Cancelled bool
}

// LRP is one revision of the process.
type LRP struct {
	Name string
	// Revision is its version; UnknownRevision if that is no number.
	Revision  int64
	Instances int32
	// Deleting says that it has a deletion timestamp; its Pods may still run.
	Deleting bool
}

// Pods counts the Pods of one revision.
type Pods struct {
	Revision int64
	// Alive are not terminating; of these Ready are ready and Crashed have ended and are not started again soon.
	Alive, Ready, Crashed int32
	// Draining are terminating; Since is when the first of them was told to.
	Draining int32
	Since    time.Time
}

// AppOf is what an app wants, by its spec and its annotations.
func AppOf(app *korifiv1alpha1.CFApp, rollout Rollout) App {
	revision, lastStop, unreadable := RevisionOf(app)
	a := App{
		Started:  app.Spec.DesiredState == korifiv1alpha1.StartedState,
		Revision: revision, LastStop: lastStop, Unreadable: unreadable,
		Overlap: app.Spec.Drain.Policy == korifiv1alpha1.DrainOverlap, Rollout: rollout,
	}
	if seconds := app.Spec.Drain.TimeoutSeconds; seconds != nil {
		a.DrainTimeout = time.Duration(*seconds) * time.Second
	}
	return a
}

// DesiredInstances is how many instances of a process are wanted while its app is started.
func DesiredInstances(p *korifiv1alpha1.CFProcess) int32 {
	switch {
	case p.Spec.DesiredInstances != nil:
		return *p.Spec.DesiredInstances
	case p.Spec.ProcessType == korifiv1alpha1.WebProcess:
		return 1
	default:
		return 0
	}
}

// older are the LRPs that a deployment replaces, the newest first: not so old that the last stop has ended them.
func (o Observed) older() []LRP {
	var found []LRP
	for _, l := range o.LRPs {
		if l.Revision >= o.App.LastStop && l.Revision < o.Target() && !l.Deleting {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b LRP) int { return cmp.Compare(b.Revision, a.Revision) })
	return found
}

// Target is the revision that should run: the app's, or the one before if its deployment was cancelled in time.
func (o Observed) Target() int64 {
	if !o.App.Rollout.Cancelled {
		return o.App.Revision
	}
	target := int64(UnknownRevision)
	for _, l := range o.LRPs {
		if l.Revision >= o.App.LastStop && l.Revision < o.App.Revision && !l.Deleting {
			target = max(target, l.Revision)
		}
	}
	if target == UnknownRevision {
		return o.App.Revision
	}
	return target
}

// current is the LRP of the target; nil if there is none.
func (o Observed) current() *LRP {
	for i := range o.LRPs {
		if o.LRPs[i].Revision == o.Target() {
			return &o.LRPs[i]
		}
	}
	return nil
}

// doomed: nothing of the revision may go on. What a cancelled deployment has started goes at once if it is of no use,
// and else when as many instances as are wanted are ready without it.
func (o Observed) doomed(revision int64) bool {
	switch {
	case !o.App.Started:
		return revision <= o.App.Revision
	case revision < o.App.LastStop:
		return true
	case revision != o.App.Revision || o.Target() == revision:
		return false
	default:
		return o.pods(revision).Ready == 0 || o.pods(o.Target()).Ready >= o.Desired
	}
}

// toDelete are the names of the LRPs that have to go, in order.
func (o Observed) toDelete() []string {
	var names []string
	for _, l := range o.LRPs {
		if o.doomed(l.Revision) && !l.Deleting {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (o Observed) pods(revision int64) Pods {
	for _, p := range o.Pods {
		if p.Revision == revision {
			return p
		}
	}
	return Pods{Revision: revision}
}

// newer is the LRP that is newer than the app; nil if none is.
func (o Observed) newer() *LRP {
	for i := range o.LRPs {
		if o.LRPs[i].Revision > o.App.Revision {
			return &o.LRPs[i]
		}
	}
	return nil
}

// leftover is what is left of revisions that have to go.
type leftover struct {
	// LRPs and pods count; since is when the first Pod was told to go, zero if none was.
	lrps, pods int32
	since      time.Time
}

func (l leftover) none() bool { return l.lrps == 0 && l.pods == 0 }

func (o Observed) leftover() leftover {
	return o.leftOf(o.doomed)
}

func (o Observed) leftOf(gone func(revision int64) bool) leftover {
	var left leftover
	for _, l := range o.LRPs {
		if gone(l.Revision) {
			left.lrps++
		}
	}
	for _, p := range o.Pods {
		if !gone(p.Revision) {
			continue
		}
		left.pods += p.Alive + p.Draining
		if !p.Since.IsZero() && (left.since.IsZero() || p.Since.Before(left.since)) {
			left.since = p.Since
		}
	}
	return left
}

// timedOut: Pods that have to go are left for longer than the app waits.
func (o Observed) timedOut() bool { return o.expired(o.leftover()) }

func (o Observed) expired(left leftover) bool {
	return o.App.DrainTimeout > 0 && !left.since.IsZero() && o.Now.Sub(left.since) >= o.App.DrainTimeout
}

// held: the current revision may not have its first Pod yet. A deployment that was cancelled holds nothing, because
// what it falls back to runs already.
func (o Observed) held() bool {
	return o.App.Started && o.Desired > 0 && o.current() == nil && !o.App.Overlap && !o.leftover().none() && !o.timedOut()
}

// Draining is how many Pods are on their way out, of any revision.
func (o Observed) Draining() int32 {
	var n int32
	for _, p := range o.Pods {
		n += p.Draining
		if o.doomed(p.Revision) {
			n += p.Alive
		}
	}
	return n
}
