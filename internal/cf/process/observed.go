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

// Observed holds the input of Decide for one process.
type Observed struct {
	Now time.Time
	// Deleted is true if the process or its app is being deleted, or if the app does not exist.
	Deleted bool
	// ProcessGUID is the name of the CFProcess.
	ProcessGUID string
	// App is the desired state of the app.
	App DesiredApp
	// BegunAt is the time at which the app's revision began.
	BegunAt time.Time
	// Desired is the number of instances while the app is started.
	Desired int32
	// NoDroplet is the reason why there is no droplet to run, or "".
	NoDroplet string
	// NameTaken is true if an LRP with another owner has the name that the revision's LRP needs.
	NameTaken bool
	// LRPs are the LRPs of the process, in any order.
	LRPs []ObservedLRP
	// Pods has one entry for each revision with Pods, even if the revision has no LRP.
	Pods []podstatus.RevisionPods
	// UpstreamPods is the number of Pods of the process that Korifi's own runner has created. Torpor neither counts
	// them as instances nor deletes them. It is 0 while the process has an LRP.
	UpstreamPods int
}

// DesiredApp is the part of an app's desired state that affects its processes.
type DesiredApp struct {
	Started bool
	// Revision and LastStop are the results of ReadRevision. Unreadable is the reason if it fails.
	Revision, LastStop int64
	Unreadable         string
	// Overlap is true if a new revision may start before the old one is deleted. DrainTimeout is the time after which
	// the new revision may start anyway. 0 means never.
	Overlap      bool
	DrainTimeout time.Duration
	// Rollout holds the options of the deployment.
	Rollout RolloutOptions
}

// RolloutOptions defines how a deployment replaces instances. The zero value is rolling, one instance at a time.
type RolloutOptions struct {
	// MaxInFlight is the number of new instances that may be starting at the same time. 0 means 1.
	MaxInFlight int32
	// CanaryPercent, if positive, is the percentage of instances at which the new revision pauses.
	CanaryPercent int32
	// CanaryOfOne is true if the new revision pauses at one instance, regardless of Desired.
	CanaryOfOne bool
	// Cancelled is true if an older revision must be restored.
	Cancelled bool
	// Cancellable is true if the revision that a cancellation would restore must be kept, even without instances.
	Cancellable bool
}

// ObservedLRP is the LRP of one revision of the process.
type ObservedLRP struct {
	Name string
	// Revision is the revision in the LRP's version, or UnknownRevision if the version is not a revision.
	Revision  int64
	Instances int32
	// Deleting is true if the LRP has a deletion timestamp, which is DeletedAt. Its Pods may still run.
	Deleting  bool
	DeletedAt time.Time
	// Refusal is the reason why Pods of the LRP are not created or cannot pull their image, or "".
	Refusal string
}

// defaultDrainTimeout is the default of spec.drain.timeoutSeconds.
const defaultDrainTimeout = 5 * time.Minute

// NewDesiredApp reads the desired state from an app's spec and annotations.
func NewDesiredApp(app *korifiv1alpha1.CFApp, rollout RolloutOptions) DesiredApp {
	current, lastStop, unreadable := revision.ReadRevision(app)
	a := DesiredApp{
		Started:  app.Spec.DesiredState == korifiv1alpha1.StartedState,
		Revision: current, LastStop: lastStop, Unreadable: unreadable,
		Overlap: app.Spec.Drain.Policy == korifiv1alpha1.DrainOverlap, Rollout: rollout,
	}
	// Korifi's schema neither stores spec.drain nor sets its defaults.
	if seconds := app.Spec.Drain.TimeoutSeconds; seconds != nil {
		a.DrainTimeout = time.Duration(*seconds) * time.Second
	} else if app.Spec.Drain.Policy == "" {
		a.DrainTimeout = defaultDrainTimeout
	}
	return a
}

// LimitMegabytes limits a size in MiB to the range of Torpor's schema, because Korifi's schema allows any number.
func LimitMegabytes(size int64) int64 { return min(max(size, 1), korifiv1alpha1.MaxMegabytes) }

// DesiredInstances returns the number of instances of a process while its app is started, limited to the range of
// Torpor's schema.
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

// olderLRPs returns the LRPs that a deployment replaces, newest first. It omits spare LRPs, LRPs from before the last
// stop, and LRPs that are being deleted.
func (o Observed) olderLRPs() []ObservedLRP {
	var found []ObservedLRP
	for _, l := range o.LRPs {
		if l.Revision >= o.App.LastStop && l.Revision < o.TargetRevision() && !l.Deleting && !o.isSpare(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b ObservedLRP) int { return cmp.Compare(b.Revision, a.Revision) })
	return found
}

// TargetRevision returns the revision that should run. It is the app's revision, or an earlier one if the deployment
// was cancelled in time.
func (o Observed) TargetRevision() int64 { return o.selectTarget(o.App.Rollout.Cancelled) }

func (o Observed) selectTarget(cancelled bool) int64 {
	if !cancelled {
		return o.App.Revision
	}
	var existing []revision.ExistingRevision
	for _, l := range o.LRPs {
		existing = append(existing, revision.ExistingRevision{Number: l.Revision, Serves: o.podsOf(l.Revision).Ready > 0, Ending: l.Deleting})
	}
	return revision.SelectTargetRevision(o.App.Revision, o.App.LastStop, true, existing)
}

// isSpare reports whether an LRP has no instances, and is kept because a cancellation of the deployment would restore
// its revision.
func (o Observed) isSpare(l ObservedLRP) bool {
	return l.Instances == 0 && o.isRestoredByCancel(l)
}

// isRestoredByCancel reports whether a cancellation of the app's deployment would restore the revision of an LRP.
func (o Observed) isRestoredByCancel(l ObservedLRP) bool {
	ongoing := o.App.Started && o.App.Rollout.Cancellable && !o.App.Rollout.Cancelled
	return ongoing && !l.Deleting && l.Revision < o.App.Revision && l.Revision == o.selectTarget(true)
}

// ReadTargetRevision returns the revision whose instances are shown to users. It is the app's revision, or the restored
// revision after a cancelled deployment.
func ReadTargetRevision(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	return revision.SelectReported(app, process, revision.IsCancelled(app))
}

// ReadRevisionBefore returns the revision of a process that a cancellation of the deployment would restore. It returns
// the app's revision if no other revision can be restored.
func ReadRevisionBefore(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	return revision.SelectReported(app, process, true)
}

// ServingRevisions returns the replaced revisions that may still serve. These began at or after the last stop and still
// have desired instances. A deployment replaces older revisions, and its cancellation replaces the newest one.
func ServingRevisions(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) (replaced []korifiv1alpha1.RevisionStatus) {
	current, lastStop, _ := revision.ReadRevision(app)
	target := ReadTargetRevision(app, process)
	for _, r := range process.Status.Revisions {
		if r.Revision >= lastStop && r.Revision <= current && r.Revision != target && r.Desired > 0 {
			replaced = append(replaced, r)
		}
	}
	return replaced
}

// targetLRP returns the LRP of the target revision, or nil.
func (o Observed) targetLRP() *ObservedLRP {
	for i := range o.LRPs {
		if o.LRPs[i].Revision == o.TargetRevision() {
			return &o.LRPs[i]
		}
	}
	return nil
}

// mustBeDeleted reports whether a revision is obsolete, so its LRP and Pods must be deleted.
func (o Observed) mustBeDeleted(revision int64) bool {
	switch {
	case !o.App.Started:
		return revision <= o.App.Revision
	case revision < o.App.LastStop:
		return true
	case revision <= o.TargetRevision() || revision > o.App.Revision:
		return false
	default:
		// Instances of a cancelled deployment may serve requests, so they are kept until enough instances of the target
		// revision are ready. If no instance of the cancelled revision is ready, the revision is deleted immediately. A
		// revision between the target revision and the cancelled revision is always kept until then, because it may
		// still become the target.
		return revision == o.App.Revision && o.podsOf(revision).Ready == 0 || o.targetStaying() >= o.Desired
	}
}

// targetStaying returns the number of ready instances that the target revision's LRP will keep. Directly after a scale
// down, more instances are still ready.
func (o Observed) targetStaying() int32 {
	target := o.targetLRP()
	if target == nil || target.Deleting {
		return 0
	}
	return min(target.Instances, o.podsOf(target.Revision).Ready)
}

// lrpsToDelete returns the sorted names of the obsolete LRPs that are not being deleted yet.
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

// newerLRP returns an LRP with a newer revision than the app, or nil.
func (o Observed) newerLRP() *ObservedLRP {
	for i := range o.LRPs {
		if o.LRPs[i].Revision > o.App.Revision {
			return &o.LRPs[i]
		}
	}
	return nil
}

// remainingObjects counts the remaining LRPs and Pods of a set of revisions.
type remainingObjects struct {
	lrps, pods int32
	// since is the time at which the first of them was deleted or left its Services. If only Pods without such a time
	// remain, it is the start of the app's revision, so the wait is finite.
	since time.Time
}

// earliest returns the earlier of two times. It ignores zero times.
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

// obsoleteRemains returns the remaining objects of obsolete revisions.
func (o Observed) obsoleteRemains() remainingObjects { return o.remainsOf(o.mustBeDeleted) }

func (o Observed) remainsOf(matches func(revision int64) bool) remainingObjects {
	var left remainingObjects
	for _, l := range o.LRPs {
		if matches(l.Revision) && !o.isSpare(l) {
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

// hasDrainTimedOut reports whether objects of obsolete revisions remain after the drain timeout.
func (o Observed) hasDrainTimedOut() bool { return o.isOverdue(o.obsoleteRemains()) }

func (o Observed) isOverdue(left remainingObjects) bool {
	return o.App.DrainTimeout > 0 && !left.since.IsZero() && o.Now.Sub(left.since) >= o.App.DrainTimeout
}

// waitsForDrain reports whether the target revision must not have Pods yet. A target with an LRP does not wait. The
// restored revision of a cancelled deployment does not wait either, because it has an LRP.
func (o Observed) waitsForDrain() bool {
	return o.App.Started && o.Desired > 0 && o.targetLRP() == nil && !o.App.Overlap && !o.obsoleteRemains().isEmpty() && !o.hasDrainTimedOut()
}

// waitsForUpstream reports whether Pods of Korifi's runner delay a start or the completion of a stop.
func (o Observed) waitsForUpstream() bool {
	return o.UpstreamPods > 0 && (!o.App.Started || o.lacksTargetLRP())
}

// CountDraining returns the number of draining Pods, including all Pods of obsolete revisions.
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
