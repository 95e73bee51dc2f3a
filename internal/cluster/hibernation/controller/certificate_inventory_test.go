// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
)

func TestBuildInventory(t *testing.T) {
	resumed := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	record := &hivev1.HibernationRecord{
		ResumeStartedAt: new(metav1.NewTime(resumed)), AsleepAt: new(metav1.NewTime(resumed.Add(-time.Hour))),
		Nodes: []hivev1.RecordedNode{
			{Name: "n1", UID: "u1", ControlPlane: true, Addresses: []hivev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}}},
			{Name: "n2.local", UID: "u2"},
		},
	}
	o := hibernation.Observed{Now: resumed.Add(time.Minute), Nodes: []hibernation.ObservedNode{
		{RecordedNode: hivev1.RecordedNode{Name: "n1", UID: "u1"}, LastSeen: resumed},
		{RecordedNode: hivev1.RecordedNode{Name: "n2.local", UID: "u2"}, LastSeen: resumed.Add(1)},
	}}
	unseen := []csr.ExistingNode{{Name: "n1", UID: "u1"}, {Name: "n2.local", UID: "u2"}}
	known := []csr.ExistingNode{{Name: "n1", UID: "u1"}, {Name: "n2.local", UID: "u2", HasReported: true}}
	first := csr.KnownMachine{NodeName: "n1", NodeUID: "u1", ControlPlane: true, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}}
	second := csr.KnownMachine{NodeName: "n2.local", NodeUID: "u2"}
	inventory := func(bootstrapper csr.BootstrapIdentity, machines ...csr.KnownMachine) csr.NodeInventory {
		return csr.NodeInventory{
			Now: o.Now, Nodes: known, NotBefore: resumed.Add(-clockSkew), NotAfter: hibernation.ApprovalsUntil(record), ClientsFrom: record.AsleepAt.Time,
			Bootstrappers: []csr.BootstrapIdentity{bootstrapper}, Machines: machines,
		}
	}
	machine := func(node string) csr.KnownMachine { return csr.KnownMachine{NodeName: node} }
	for name, row := range map[string]struct {
		record    *hivev1.HibernationRecord
		machines  []csr.KnownMachine
		openShift bool
		want      csr.NodeInventory
	}{
		"cluster that never hibernated admits no node":                 {nil, nil, false, csr.NodeInventory{Now: o.Now, Nodes: unseen}},
		"hibernating cluster admits no node":                           {&hivev1.HibernationRecord{Nodes: record.Nodes}, nil, true, csr.NodeInventory{Now: o.Now, Nodes: unseen}},
		"plain Kubernetes cluster admits the recorded nodes":           {record, nil, false, inventory(csr.TokenIdentity(), first, second)},
		"OpenShift cluster without Machines admits the recorded nodes": {record, nil, true, inventory(csr.OpenShiftIdentity(), first, second)},
		"Machines determine the admitted nodes if all nodes have Machines, and recorded nodes keep their UIDs": {
			record,
			[]csr.KnownMachine{machine("n1"), machine("N2.local."), machine("new")},
			true,
			inventory(csr.OpenShiftIdentity(), csr.KnownMachine{NodeName: "n1", NodeUID: "u1"}, csr.KnownMachine{NodeName: "N2.local.", NodeUID: "u2"}, machine("new")),
		},
		"recorded nodes without Machines are admitted too if only workers have Machines": {
			record, []csr.KnownMachine{machine("n2.local")}, true, inventory(csr.OpenShiftIdentity(), second, first),
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Record = row.record
			if diff := cmp.Diff(row.want, buildInventory(o, row.machines, row.openShift)); diff != "" {
				t.Errorf("inventory (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMeasureClock(t *testing.T) {
	asked := time.Date(2026, 7, 1, 12, 0, 0, 900_000_000, time.UTC)
	for name, row := range map[string]struct {
		date time.Time
		want time.Duration
	}{
		"response without a date means no skew":       {time.Time{}, 0},
		"clock in the same second means no skew":      {asked.Truncate(time.Second), 0},
		"slow response means no skew":                 {asked.Add(5 * time.Second), 0},
		"clock that is a minute ahead is measured":    {asked.Add(time.Minute), time.Minute},
		"clock that is an hour behind is measured":    {asked.Add(-time.Hour), -time.Hour},
		"clock at the start of Unix time is measured": {time.Unix(0, 0), time.Unix(0, 0).Sub(asked)},
	} {
		if got := measureClock(row.date, asked); got != row.want {
			t.Errorf("%s: expected %s, found %s", name, row.want, got)
		}
	}
}

func TestConfirmedAddresses(t *testing.T) {
	node := func(addresses ...string) hivev1.RecordedNode {
		n := hivev1.RecordedNode{Name: "worker", Addresses: []hivev1.NodeAddress{{Type: "Hostname", Address: "Worker"}}}
		for _, a := range addresses {
			n.Addresses = append(n.Addresses, hivev1.NodeAddress{Type: "InternalIP", Address: a})
		}
		return n
	}
	worker, master := actuator.Machine{ID: "w", Addresses: []string{"10.0.0.2", "fd00::2"}}, actuator.Machine{ID: "m", Addresses: []string{"10.0.0.1"}}
	other := hivev1.RecordedNode{Name: "master", ControlPlane: true, Addresses: []hivev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}}}
	namedWorker, namedMaster := worker, master
	namedWorker.Name, namedMaster.Addresses = "WORKER", []string{"10.0.0.1", "master."}
	for name, row := range map[string]struct {
		claimed []string
		atCloud []actuator.Machine
		want    []string
	}{
		"all addresses of the node's machine are confirmed":                                      {[]string{"10.0.0.2", "fd00::2"}, []actuator.Machine{worker, master}, []string{"Worker", "10.0.0.2", "fd00::2"}},
		"address of no machine is not confirmed":                                                 {[]string{"10.0.0.2", "10.9.9.9"}, []actuator.Machine{worker, master}, []string{"Worker", "10.0.0.2"}},
		"claim to another machine's address prevents the confirmation of the node's own address": {[]string{"10.0.0.2", "10.0.0.1"}, []actuator.Machine{worker, master}, nil},
		"addresses that the cloud does not list are not confirmed":                               {[]string{"10.9.9.9"}, []actuator.Machine{worker, master}, nil},
		"address of another machine alone is not confirmed":                                      {[]string{"10.0.0.1"}, []actuator.Machine{worker, master}, nil},
		"address of another machine is not confirmed for a machine with the node's name": {
			[]string{"10.0.0.1"}, []actuator.Machine{namedWorker, master}, nil,
		},
		"address of a machine with another node's name is not confirmed":         {[]string{"10.0.0.3"}, []actuator.Machine{{ID: "x", Name: "master", Addresses: []string{"10.0.0.3"}}}, nil},
		"own address is confirmed if the machines have the names of their nodes": {[]string{"10.0.0.2"}, []actuator.Machine{namedWorker, namedMaster}, []string{"Worker", "10.0.0.2"}},
		"own address that another node also claims is confirmed for a named machine": {
			[]string{"10.0.0.1"}, []actuator.Machine{{ID: "w", Addresses: []string{"10.0.0.1", "worker"}}, namedMaster}, []string{"Worker", "10.0.0.1"},
		},
		"all addresses are confirmed if the cloud lists none":                      {[]string{"10.9.9.9"}, []actuator.Machine{{ID: "w"}}, []string{"Worker", "10.9.9.9"}},
		"no address is confirmed if the cloud lists addresses of one machine only": {[]string{"10.9.9.9"}, []actuator.Machine{{ID: "w"}, master}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			n := node(row.claimed...)
			for _, a := range findMachineOwners([]hivev1.RecordedNode{n, other}, row.atCloud).confirmedAddresses(n) {
				got = append(got, a.Address)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
