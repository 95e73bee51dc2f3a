// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

func TestOpenShiftMachine(t *testing.T) {
	internalDNS := map[string]any{"type": "InternalDNS", "address": "ip-10-0-0-1.ec2.internal"}
	internalIP := map[string]any{"type": "InternalIP", "address": "10.0.0.1"}
	both := []corev1.NodeAddress{
		{Type: corev1.NodeInternalDNS, Address: "ip-10-0-0-1.ec2.internal"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
	}
	for name, row := range map[string]struct {
		object map[string]any
		want   csr.KnownMachine
	}{
		"a machine with a node": {
			map[string]any{"status": map[string]any{"nodeRef": map[string]any{"kind": "Node", "name": "worker-0"}, "addresses": []any{internalDNS, internalIP}}},
			csr.KnownMachine{NodeName: "worker-0", Addresses: both},
		},
		"a machine without a node takes the one of its internal name": {
			map[string]any{"status": map[string]any{"addresses": []any{internalDNS, internalIP}}},
			csr.KnownMachine{NodeName: "ip-10-0-0-1.ec2.internal", Addresses: both},
		},
		"a control-plane machine": {
			map[string]any{
				"metadata": map[string]any{"labels": map[string]any{roleLabel: "master"}},
				"status":   map[string]any{"nodeRef": map[string]any{"name": "master-0"}},
			},
			csr.KnownMachine{NodeName: "master-0", ControlPlane: true},
		},
		"a machine of another role": {
			map[string]any{"metadata": map[string]any{"labels": map[string]any{roleLabel: "worker"}}},
			csr.KnownMachine{},
		},
		"a machine that is being deleted": {
			map[string]any{
				"metadata": map[string]any{"deletionTimestamp": "2026-07-01T12:00:00Z"},
				"status":   map[string]any{"nodeRef": map[string]any{"name": "worker-0"}},
			},
			csr.KnownMachine{NodeName: "worker-0", Deleting: true},
		},
		"a machine without a status takes no node":     {map[string]any{}, csr.KnownMachine{}},
		"what does not look like one takes no node":    {map[string]any{"status": "fine"}, csr.KnownMachine{}},
		"a reference that is none takes no node":       {map[string]any{"status": map[string]any{"nodeRef": "worker-0", "addresses": []any{internalDNS}}}, csr.KnownMachine{}},
		"addresses that are none take no node":         {map[string]any{"status": map[string]any{"addresses": "10.0.0.1"}}, csr.KnownMachine{}},
		"an external name is no name of a node":        {map[string]any{"status": map[string]any{"addresses": []any{map[string]any{"type": "ExternalDNS", "address": "a.b"}}}}, csr.KnownMachine{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalDNS, Address: "a.b"}}}},
		"an empty reference does not fall back to DNS": {map[string]any{"status": map[string]any{"nodeRef": map[string]any{}, "addresses": []any{internalDNS}}}, csr.KnownMachine{Addresses: both[:1]}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, openShiftMachine(&unstructured.Unstructured{Object: row.object})); diff != "" {
				t.Errorf("machine (-want +got):\n%s", diff)
			}
		})
	}
}

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
	machine := func(node string) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"nodeRef": map[string]any{"name": node}}}}
	}
	for name, row := range map[string]struct {
		record    *hivev1.HibernationRecord
		machines  []unstructured.Unstructured
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
			record, []unstructured.Unstructured{machine("n1"), machine("N2.local."), machine("new")}, true, csr.NodeInventory{
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
