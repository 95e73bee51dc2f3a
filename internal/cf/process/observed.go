// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// Observed is everything that Decide looks at of one process.
type Observed struct {
	Now time.Time
	// Deleted says that the process or its app is being deleted.
	Deleted bool
	// ProcessGUID is the name of the CFProcess.
	ProcessGUID string
	// App is what is wanted.
	App DesiredApp
	// BegunAt is when the app's revision began.
	BegunAt time.Time
	// Desired is how many instances are wanted while the app is started.
	Desired int32
	// NoDroplet says why there is nothing to run; empty when there is an image.
	NoDroplet string
	// NameTaken says that an object that is not the process's has the name that the current revision needs.
	NameTaken bool
	// LRPs are those that the process owns, in any order.
	LRPs []ObservedLRP
	// Pods are the process's, one entry for each revision that has any, whether or not its LRP is there.
	Pods []podstatus.RevisionPods
	// UpstreamPods are those that Korifi's own runner has made of the process. Torpor neither counts nor deletes them.
	UpstreamPods int
}

// DesiredApp is what an app wants of its processes.
type DesiredApp struct {
	Started bool
	// Revision and LastStop are as RevisionOf reads them; Unreadable says why it cannot.
	Revision, LastStop int64
	Unreadable         string
	// Overlap lets a new revision start before the old one is gone; DrainTimeout does so after that time, 0 never.
	Overlap      bool
	DrainTimeout time.Duration
	// Rollout is how a deployment goes on.
	Rollout RolloutOptions
}

// RolloutOptions is how a deployment goes on. The zero value is rolling, one instance at a time.
type RolloutOptions struct {
	// MaxInFlight is how many instances may be started before others are stopped; 0 means 1.
	MaxInFlight int32
	// CanaryPercent, if it is more than 0, holds the new revision at this share of the instances.
	CanaryPercent int32
	// CanaryOfOne holds it at one instance, however many are wanted.
	CanaryOfOne bool
	// Cancelled takes the new revision back.
	Cancelled bool
}

// ObservedLRP is one revision of the process.
type ObservedLRP struct {
	Name string
	// Revision is its version; UnknownRevision if that is no number.
	Revision  int64
	Instances int32
	// Deleting says that it has a deletion timestamp, which DeletedAt is; its Pods may still run.
	Deleting  bool
	DeletedAt time.Time
	// Refusal is why Kubernetes makes fewer Pods of it than it wants; empty if it does not.
	Refusal string
}

// defaultDrainTimeout is the default of spec.drain.timeoutSeconds.
const defaultDrainTimeout = 5 * time.Minute

// NewDesiredApp reads what an app wants from its spec and its annotations.
func NewDesiredApp(app *korifiv1alpha1.CFApp, rollout RolloutOptions) DesiredApp {
	current, lastStop, unreadable := revision.ReadRevision(app)
	a := DesiredApp{
		Started:  app.Spec.DesiredState == korifiv1alpha1.StartedState,
		Revision: current, LastStop: lastStop, Unreadable: unreadable,
		Overlap: app.Spec.Drain.Policy == korifiv1alpha1.DrainOverlap, Rollout: rollout,
	}
	// Upstream's schema neither keeps nor fills in spec.drain.
	if seconds := app.Spec.Drain.TimeoutSeconds; seconds != nil {
		a.DrainTimeout = time.Duration(*seconds) * time.Second
	} else if app.Spec.Drain.Policy == "" {
		a.DrainTimeout = defaultDrainTimeout
	}
	return a
}

// LimitMegabytes returns a size in MiB within what the schema allows, because upstream's schema allows any number.
func LimitMegabytes(size int64) int64 { return min(max(size, 1), korifiv1alpha1.MaxMegabytes) }

// DesiredInstances returns how many instances of a process are wanted while its app is started, within what the schema allows.
func DesiredInstances(p *korifiv1alpha1.CFProcess) int32 {
	switch {
	case p.Spec.DesiredInstances != nil:
		return min(max(*p.Spec.DesiredInstances, 0), korifiv1alpha1.MaxInstances)
	case p.Spec.ProcessType == korifiv1alpha1.WebProcess:
		return 1
	default:
		return 0
	}
}

// olderLRPs returns the LRPs that a deployment replaces, the newest first. Those from before the last stop are none of them.
func (o Observed) olderLRPs() []ObservedLRP {
	var found []ObservedLRP
	for _, l := range o.LRPs {
		if l.Revision >= o.App.LastStop && l.Revision < o.TargetRevision() && !l.Deleting {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b ObservedLRP) int { return cmp.Compare(b.Revision, a.Revision) })
	return found
}

// TargetRevision returns the revision that should run: the app's, or an earlier one if its deployment was cancelled in time.
func (o Observed) TargetRevision() int64 {
	var existing []revision.ExistingRevision
	for _, l := range o.LRPs {
		if !l.Deleting {
			existing = append(existing, revision.ExistingRevision{Number: l.Revision, Serves: o.podsOf(l.Revision).Ready > 0})
		}
	}
	return revision.SelectTargetRevision(o.App.Revision, o.App.LastStop, o.App.Rollout.Cancelled, existing)
}

// ReadTargetRevision returns the revision whose instances people see: the app's, or the one that came back when its deployment
// was cancelled.
func ReadTargetRevision(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	return selectTarget(app, process, revision.IsCancelled(app))
}

// ReadRevisionBefore returns the revision of a process that comes back if the app's deployment is cancelled; the app's if none can.
func ReadRevisionBefore(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	return selectTarget(app, process, true)
}

func selectTarget(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess, cancelled bool) int64 {
	current, lastStop, _ := revision.ReadRevision(app)
	var existing []revision.ExistingRevision
	for _, r := range process.Status.Revisions {
		// A revision that wants no instances is on its way out and cannot come back.
		if r.Desired > 0 {
			existing = append(existing, revision.ExistingRevision{Number: r.Revision, Serves: r.Ready > 0})
		}
	}
	return revision.SelectTargetRevision(current, lastStop, cancelled, existing)
}

// ServingRevisions returns the revisions before the one that people see which a deployment lets serve: those since the last stop that
// are not on their way out.
func ServingRevisions(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) (older []korifiv1alpha1.RevisionStatus) {
	_, lastStop, _ := revision.ReadRevision(app)
	target := ReadTargetRevision(app, process)
	for _, r := range process.Status.Revisions {
		if r.Revision >= lastStop && r.Revision < target && r.Desired > 0 {
			older = append(older, r)
		}
	}
	return older
}

// targetLRP returns the LRP of the target revision; nil if there is none.
func (o Observed) targetLRP() *ObservedLRP {
	for i := range o.LRPs {
		if o.LRPs[i].Revision == o.TargetRevision() {
			return &o.LRPs[i]
		}
	}
	return nil
}

// mustBeDeleted reports whether nothing of a revision may go on.
func (o Observed) mustBeDeleted(revision int64) bool {
	switch {
	case !o.App.Started:
		return revision <= o.App.Revision
	case revision < o.App.LastStop:
		return true
	case revision <= o.TargetRevision() || revision > o.App.Revision:
		return false
	default:
		// What a cancelled deployment has started may serve requests: it goes when enough instances are ready without it. So does
		// what was deployed before it and does not serve now, which may be the one to come back to a moment later.
		return revision == o.App.Revision && o.podsOf(revision).Ready == 0 || o.podsOf(o.TargetRevision()).Ready >= o.Desired
	}
}

// lrpsToDelete returns the names of the LRPs that have to go, in order.
func (o Observed) lrpsToDelete() []string {
	var names []string
	for _, l := range o.LRPs {
		if o.mustBeDeleted(l.Revision) && !l.Deleting {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (o Observed) podsOf(revision int64) podstatus.RevisionPods {
	for _, p := range o.Pods {
		if p.Revision == revision {
			return p
		}
	}
	return podstatus.RevisionPods{Revision: revision}
}

// newerLRP returns an LRP that is newer than the app; nil if none is.
func (o Observed) newerLRP() *ObservedLRP {
	for i := range o.LRPs {
		if o.LRPs[i].Revision > o.App.Revision {
			return &o.LRPs[i]
		}
	}
	return nil
}

// remainingObjects is what exists of some revisions.
type remainingObjects struct {
	lrps, pods int32
	// since is when the deletion of the first of them was requested. Of what nobody was told to delete, such as a Pod without an
	// LRP, it is when the app's revision began, so that nothing is waited for without an end.
	since time.Time
}

// earliest returns the earlier of two times; a zero time is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (r remainingObjects) String() string {
	if r.pods == 0 && r.lrps > 0 {
		return fmt.Sprintf("%d LRPs", r.lrps)
	}
	return fmt.Sprintf("%d instances", r.pods)
}

func (r remainingObjects) isEmpty() bool { return r.lrps == 0 && r.pods == 0 }

// obsoleteRemains returns what is left of revisions that have to go.
func (o Observed) obsoleteRemains() remainingObjects { return o.remainsOf(o.mustBeDeleted) }

func (o Observed) remainsOf(matches func(revision int64) bool) remainingObjects {
	var left remainingObjects
	for _, l := range o.LRPs {
		if matches(l.Revision) {
			left.lrps++
			left.since = earliest(left.since, l.DeletedAt)
		}
	}
	for _, p := range o.Pods {
		if !matches(p.Revision) {
			continue
		}
		left.pods += p.Alive + p.Draining
		left.since = earliest(left.since, p.Since)
	}
	if left.since.IsZero() && left.lrps == 0 && left.pods > 0 {
		left.since = o.BegunAt
	}
	return left
}

// hasDrainTimedOut reports whether Pods that have to go are left for longer than the app waits.
func (o Observed) hasDrainTimedOut() bool { return o.isOverdue(o.obsoleteRemains()) }

func (o Observed) isOverdue(left remainingObjects) bool {
	return o.App.DrainTimeout > 0 && !left.since.IsZero() && o.Now.Sub(left.since) >= o.App.DrainTimeout
}

// waitsForDrain reports whether the target revision may not have its first Pod yet. One that has an LRP already waits for
// nothing, and neither does a cancelled deployment: what it falls back to runs.
func (o Observed) waitsForDrain() bool {
	return o.App.Started && o.Desired > 0 && o.targetLRP() == nil && !o.App.Overlap && !o.obsoleteRemains().isEmpty() && !o.hasDrainTimedOut()
}

// waitsForUpstream reports whether Pods of Korifi's runner are in the way of a start, or of being stopped.
func (o Observed) waitsForUpstream() bool {
	return o.UpstreamPods > 0 && (!o.App.Started || o.lacksTargetLRP())
}

// CountDraining returns how many Pods are on their way out, of any revision.
func (o Observed) CountDraining() int32 {
	var n int32
	for _, p := range o.Pods {
		n += p.Draining
		if o.mustBeDeleted(p.Revision) {
			n += p.Alive
		}
	}
	return n
}
