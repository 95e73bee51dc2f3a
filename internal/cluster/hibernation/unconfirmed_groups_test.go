// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// restoredCluster is a resumed cluster with a group that is still suspended, and with a record that contains no nodes.
func restoredCluster(edit func(*Observed)) Observed {
	o := observedCluster(hivev1.PowerStateRunning, nil, actuator.Running, machineOfGroup(0))
	now := modelTime()
	o.Now, o.API = now, Reachable
	o.Nodes = []ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: now}}
	o.Record = &hivev1.HibernationRecord{
		SleepStartedAt: metav1.NewTime(now.Add(-time.Hour)), ResumeStartedAt: new(metav1.NewTime(now.Add(-time.Minute))),
	}
	o.Options.MachineGroups, o.CanChangeGroups, o.Groups = hivev1.MachineGroupsSuspend, true, []actuator.Group{workersGroup("Health", "Launch")}
	if edit != nil {
		edit(&o)
	}
	return o
}

// TestGroupsOfALostRecordAreConfirmedByUsers lists the groups that Degraded describes once a cluster without a complete
// record runs. No action changes them.
func TestGroupsOfALostRecordAreConfirmedByUsers(t *testing.T) {
	const scaled = "may have scaled to zero"
	for name, row := range map[string]struct {
		edit func(*Observed)
		want string
	}{
		"suspended group is listed":                        {nil, "suspended or paused: workers-a;"},
		"group with an active process is not listed":       {func(o *Observed) { o.Groups[0].Suspended = []string{"Launch"} }, ""},
		"suspended group of a complete record: not listed": {func(o *Observed) { o.Record.Nodes = completeNodes() }, ""},
		"suspended group after a repair is listed": {func(o *Observed) {
			o.Record.Nodes, o.Record.Repair = completeNodes(), true
		}, "workers-a"},
		"group that was not read is listed, with advice to set the annotation": {func(o *Observed) {
			o.Options.MachineGroups, o.Groups = "", nil
		}, "workers-a; after the resume, resume their processes or end their pauses, and set the annotation torpor.dev/machine-groups"},
		"group that was not read after a repair: not listed": {func(o *Observed) { o.Options.MachineGroups, o.Groups, o.Record.Repair = "", nil, true }, ""},
		"group that Torpor cannot change is not listed":      {func(o *Observed) { o.Options.MachineGroups, o.Groups, o.CanChangeGroups = "", nil, false }, ""},
		"Cluster that another user has paused is listed": {func(o *Observed) {
			o.Groups = []actuator.Group{NewClusterAPIGroup("c", PausedByOther)}
			o.Machines = o.Machines[1:]
		}, "paused: Cluster.cluster.x-k8s.io/c;"},
		"paused Cluster after a repair is not listed": {func(o *Observed) {
			o.Groups, o.Record.Repair = []actuator.Group{NewClusterAPIGroup("c", PausedByOther), workersGroup()}, true
		}, ""},
		"no machine in a group, scale-to-zero: warning": {func(o *Observed) {
			o.Options.MachineGroups, o.Machines, o.Groups = hivev1.MachineGroupsScaleToZero, ungrouped(), nil
		}, scaled},
		"a machine in a group, scale-to-zero: no warning": {func(o *Observed) {
			o.Options.MachineGroups, o.Groups = hivev1.MachineGroupsScaleToZero, []actuator.Group{workersGroup()}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(restoredCluster(row.edit))
			if _, isNothing := p.Do.(NoAction); p.Rule != "running" || !isNothing {
				t.Errorf("expected a running cluster and no action, found %q and %+v", p.Rule, p.Do)
			}
			if isListed := p.Degraded.Reason == hivev1.MachineGroupsUnconfirmedReason; isListed != (row.want != "") || !strings.Contains(p.Degraded.Message, row.want) {
				t.Errorf("expected a condition with %q, found %+v", row.want, p.Degraded)
			}
		})
	}
}

func completeNodes() []hivev1.RecordedNode {
	return []hivev1.RecordedNode{{Name: "n0", UID: "uid-n0", Ready: true}}
}

func ungrouped() []actuator.Machine {
	return []actuator.Machine{{ID: "i-0", State: actuator.Running}}
}

// TestPausesWithoutARecordAreRecordedAtTheResume has objects with Torpor's mark that no record contains.
func TestPausesWithoutARecordAreRecordedAtTheResume(t *testing.T) {
	paused := func(o *Observed) {
		o.Machines, o.Groups = ungrouped(), nil
		setPauses(o, PausedByUs, PausedByUs)
		o.HasReadClusterAPI, o.HasReadHealthChecks = true, true
	}
	for name, row := range map[string]struct {
		edit func(*Observed)
		want []string
	}{
		"pauses by Torpor are recorded": {paused, []string{pausedCluster, pausedCheck}},
		"pauses of other users are not recorded": {func(o *Observed) {
			paused(o)
			o.Groups = nil
			setPauses(o, PausedByOther, PausedByOther)
		}, nil},
		"pauses in a cluster that has resumed are not recorded": {func(o *Observed) { paused(o); o.Record.ResumedAt = new(metav1.NewTime(o.Now)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := restoredCluster(row.edit)
			if !NeedsHealthChecks(o) && o.Record.ResumedAt == nil {
				t.Error("expected MachineHealthChecks to be read")
			}
			var found []string
			for _, r := range Decide(o).Record.MachineGroups {
				found = append(found, r.Name)
			}
			if slices.Sort(found); !slices.Equal(found, slices.Sorted(slices.Values(row.want))) {
				t.Errorf("expected the entries %v, found %v", row.want, found)
			}
		})
	}
}
