// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Objects whose controllers replace machines count as groups, too: the Cluster of Cluster API on the hub, and the
// MachineHealthChecks of OpenShift and of Cluster API in the cluster. Their only process is suspended by the pause that
// their projects document (docs/adr/0055-controllers-of-machines-are-paused-as-groups.md, checked by
// TestHistoriesOfPausedControllersReplaceNothing).

// The record contains such groups under names with these prefixes, followed by the object's name, or its namespace and
// name.
const (
	clusterAPIPrefix            = "Cluster.cluster.x-k8s.io/"
	healthCheckPrefix           = "MachineHealthCheck.machine.openshift.io/"
	clusterAPIHealthCheckPrefix = "MachineHealthCheck.cluster.x-k8s.io/"
)

// reconcileProcess is the only process of a group that is an object.
const reconcileProcess = "Reconcile"

// PauseState describes whether Torpor, another user or neither has paused an object whose controller replaces machines.
type PauseState string

// These are the pause states. An object that another user has paused is left unchanged.
const (
	NotPaused     PauseState = "not paused"
	PausedByUs    PauseState = "paused by Torpor"
	PausedByOther PauseState = "paused by another user"
)

// NewClusterAPIGroup returns the group for a Cluster of Cluster API on the hub.
func NewClusterAPIGroup(name string, state PauseState) actuator.Group {
	return newPausedGroup(clusterAPIPrefix+name, state)
}

// NewHealthCheckGroup returns the group for a MachineHealthCheck of OpenShift.
func NewHealthCheckGroup(name string, state PauseState) actuator.Group {
	return newPausedGroup(healthCheckPrefix+name, state)
}

// NewClusterAPIHealthCheckGroup returns the group for a MachineHealthCheck of Cluster API in the cluster.
func NewClusterAPIHealthCheckGroup(namespace, name string, state PauseState) actuator.Group {
	return newPausedGroup(clusterAPIHealthCheckPrefix+namespace+"/"+name, state)
}

func newPausedGroup(name string, state PauseState) actuator.Group {
	switch state {
	case PausedByUs:
		return actuator.Group{Name: name, Processes: []string{reconcileProcess}, Suspended: []string{reconcileProcess}}
	case PausedByOther:
		return actuator.Group{Name: name} // The group has no active process, and no process to resume.
	case NotPaused:
		return actuator.Group{Name: name, Processes: []string{reconcileProcess}}
	default:
		return actuator.Group{Name: name, Processes: []string{reconcileProcess}}
	}
}

// IsHealthCheck reports whether a group is a MachineHealthCheck of the cluster.
func IsHealthCheck(group string) bool {
	return strings.HasPrefix(group, healthCheckPrefix) || strings.HasPrefix(group, clusterAPIHealthCheckPrefix)
}

// IsGroupOfCloud reports whether a group is not an object of the hub or of the cluster.
func IsGroupOfCloud(group string) bool { return !isOfHub(group) && !IsHealthCheck(group) }

func isOfHub(group string) bool { return strings.HasPrefix(group, clusterAPIPrefix) }

// clusterAPINotHeld is the reason why the machines of a Cluster must not be stopped.
const clusterAPINotHeld = "Expected machines that stay off once they are stopped, found %s, " +
	"whose controllers replace machines that are not healthy; set spec.paused of this object in the namespace of the " +
	"ClusterDeployment to true, or set the annotation " + hivev1.MachineGroupsAnnotation + " to " + hivev1.MachineGroupsSuspend

// whyNotPaused returns the reason why Torpor must not pause an object; empty if Torpor may pause it.
func (o Observed) whyNotPaused(group string) string {
	if o.Options.MachineGroups == hivev1.MachineGroupsSuspend {
		return ""
	}
	return fmt.Sprintf(clusterAPINotHeld, group)
}

// activeObjects returns the objects whose controllers may replace machines that are not stopped. Without the option
// suspend, the cluster's MachineHealthChecks are only reported as findings, because their controllers do not run while
// the cluster is off.
func (o Observed) activeObjects() []string {
	var names []string
	if len(o.Machines) == 0 || o.allMachinesAre(actuator.Stopped) {
		return nil
	}
	isPausing := o.Options.MachineGroups == hivev1.MachineGroupsSuspend
	for _, g := range o.Groups {
		isActive := isPausing && len(g.Processes) > 0 || isOfHub(g.Name) && !g.IsSuspended()
		if !IsGroupOfCloud(g.Name) && isActive {
			names = append(names, g.Name)
		}
	}
	return names
}

// groupsUnread returns the reason why a hibernation must not begin, if objects that it would pause cannot be read.
func (o Observed) groupsUnread() string {
	if o.GroupsError == "" || o.isHibernationOpen() || o.Options.MachineGroups != hivev1.MachineGroupsSuspend {
		return ""
	}
	return "Cannot read the objects whose controllers replace machines and must be paused first: " + o.GroupsError
}

// NeedsHealthChecks reports whether the cluster's MachineHealthChecks must be read. They are read to record them,
// until they are paused, and until their earlier state is restored. If the record was lost, a resume looks for pauses of
// Torpor.
func NeedsHealthChecks(o Observed) bool {
	switch {
	case !NeedsNodes(o):
		return false
	case !o.shouldHibernate():
		isRecorded := o.Record != nil && slices.ContainsFunc(o.Record.MachineGroups, func(r hivev1.MachineGroupRecord) bool { return IsHealthCheck(r.Name) })
		return isRecorded || o.isResuming() && o.hasLostRecord()
	case !o.isHibernationOpen():
		return o.Options.MachineGroups == hivev1.MachineGroupsSuspend
	default:
		return o.needsPauseLook()
	}
}

// unheldHealthChecks returns the recorded MachineHealthChecks that were not yet observed as paused.
func (o Observed) unheldHealthChecks() []string {
	if o.Record == nil {
		return nil
	}
	var names []string
	for _, r := range o.Record.MachineGroups {
		if IsHealthCheck(r.Name) && r.HeldAt == nil {
			names = append(names, r.Name)
		}
	}
	return names
}

// needsPauseLook reports whether a cluster must be read because pauses of its MachineHealthChecks are not recorded yet.
func (o Observed) needsPauseLook() bool {
	return o.shouldHibernate() && o.isHibernationOpen() && len(o.unheldHealthChecks()) > 0 && o.anyMachineIs(actuator.Running)
}

// awaitsPause reports whether machines are left on until the MachineHealthChecks are paused. The stop waits at most
// nodeRecordWindow for a cluster that no longer responds.
func (o Observed) awaitsPause() bool {
	return o.needsPauseLook() && (o.API == Reachable || o.Now.Sub(o.stopBeganAt()) < nodeRecordWindow)
}

// pausedHealthChecks returns the MachineHealthChecks with an observed pause that is not recorded yet. A deleted
// MachineHealthCheck counts as paused.
func (o Observed) pausedHealthChecks() []string {
	if !o.HasReadHealthChecks {
		return nil
	}
	return slices.DeleteFunc(o.unheldHealthChecks(), func(name string) bool {
		group, isKnown := o.findGroup(name)
		return isKnown && !group.IsSuspended()
	})
}

// hasUnrecordedPauses reports whether the time of a pause must be saved before machines are stopped.
func (o Observed) hasUnrecordedPauses() bool {
	return o.needsPauseLook() && len(o.pausedHealthChecks()) > 0
}

// recordPauses only writes status, as recordNodes does.
// Invariant: while the API server responds, the first machine is stopped only in a pass that has read the saved time of
// each pause, so the cluster need not respond after that (TestManagersThatDieAtEachActKeepPauses).
func recordPauses(o Observed) Plan {
	p := stoppingPlan(o)
	p.Record = p.Record.DeepCopy()
	paused := o.pausedHealthChecks()
	for i := range p.Record.MachineGroups {
		if r := &p.Record.MachineGroups[i]; slices.Contains(paused, r.Name) {
			r.HeldAt = new(metav1.NewTime(o.Now.Truncate(time.Second)))
		}
	}
	p.RequeueAfter = immediately
	return p
}

// awaitPause lists the MachineHealthChecks that are not paused yet in the Ready condition of a plan.
func (o Observed) awaitPause(p Plan) Plan {
	names := o.unheldHealthChecks()
	if len(names) == 0 || o.Refusal != nil {
		return p
	}
	parts := []string{"Waiting for MachineHealthChecks to be paused before the machines are stopped: " + joinNames(names), o.APIMessage, o.GroupsError}
	message := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
	p.Ready, p.ProbeInterval = decision.False(hivev1.StoppingMachinesReason, message), minCloudInterval
	return p
}

// LeftGroups returns the objects that a plan removes from the record although they are paused, because another user has
// paused them.
func LeftGroups(o Observed, p Plan) []string {
	if o.Record == nil || p.Record == nil || o.shouldHibernate() {
		return nil
	}
	var names []string
	for _, r := range o.Record.MachineGroups {
		group, isKnown := o.findGroup(r.Name)
		isOver := !slices.ContainsFunc(p.Record.MachineGroups, func(left hivev1.MachineGroupRecord) bool { return left.Name == r.Name })
		if isOver && isKnown && !IsGroupOfCloud(r.Name) && len(group.Processes) == 0 {
			names = append(names, r.Name)
		}
	}
	return names
}

// HasRecordedGroup reports whether a record contains a group.
func HasRecordedGroup(r *hivev1.HibernationRecord, name string) bool {
	return Observed{Record: r}.recordedGroup(name) != nil
}
