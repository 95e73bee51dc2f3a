// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

func TestBuildInventory(t *testing.T) {
	resumed := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	record := &hivev1.HibernationRecord{
		ResumeStartedAt: new(metav1.NewTime(resumed)),
		Nodes: []hivev1.RecordedNode{
			{Name: "n1", UID: "u1", ControlPlane: true, Addresses: []hivev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}}},
			{Name: "n2.local", UID: "u2"},
		},
	}
	nodes := []hibernation.ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n1", UID: "u1"}}}
	known := []csr.ExistingNode{{Name: "n1", UID: "u1"}}
	machine := func(node string) csr.KnownMachine { return csr.KnownMachine{NodeName: node} }
	for name, row := range map[string]struct {
		record    *hivev1.HibernationRecord
		machines  []csr.KnownMachine
		openShift bool
		want      csr.NodeInventory
	}{
		"a cluster that never hibernated lets no node in": {nil, nil, false, csr.NodeInventory{Nodes: known}},
		"a cluster that still hibernates lets no node in": {&hivev1.HibernationRecord{Nodes: record.Nodes}, nil, true, csr.NodeInventory{Nodes: known}},
		"without OpenShift the recorded nodes come back": {record, nil, false, csr.NodeInventory{
			Nodes: known, NotBefore: resumed.Add(-clockSkew), Bootstrappers: []csr.BootstrapIdentity{csr.TokenIdentity()},
			Machines: []csr.KnownMachine{
				{NodeName: "n1", NodeUID: "u1", ControlPlane: true, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}},
				{NodeName: "n2.local", NodeUID: "u2"},
			},
		}},
		"with OpenShift its Machines decide, and recorded nodes keep their identity": {
			record, []csr.KnownMachine{machine("n1"), machine("N2.local."), machine("new")}, true, csr.NodeInventory{
				Nodes: known, NotBefore: resumed.Add(-clockSkew), Bootstrappers: []csr.BootstrapIdentity{csr.OpenShiftIdentity()},
				Machines: []csr.KnownMachine{{NodeName: "n1", NodeUID: "u1"}, {NodeName: "N2.local.", NodeUID: "u2"}, {NodeName: "new"}},
			},
		},
		"OpenShift without Machines lets no node in": {record, nil, true, csr.NodeInventory{
			Nodes: known, NotBefore: resumed.Add(-clockSkew), Bootstrappers: []csr.BootstrapIdentity{csr.OpenShiftIdentity()},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, buildInventory(row.record, nodes, row.machines, row.openShift)); diff != "" {
				t.Errorf("inventory (-want +got):\n%s", diff)
			}
		})
	}
}
