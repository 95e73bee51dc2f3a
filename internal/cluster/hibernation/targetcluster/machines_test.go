// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
)

func TestDecodeMachine(t *testing.T) {
	internalDNS := map[string]any{"type": "InternalDNS", "address": "ip-10-0-0-1.ec2.internal"}
	internalIP := map[string]any{"type": "InternalIP", "address": "10.0.0.1"}
	both := []corev1.NodeAddress{
		{Type: corev1.NodeInternalDNS, Address: "ip-10-0-0-1.ec2.internal"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
	}
	for name, row := range map[string]struct {
		object map[string]any
		want   csr.KnownMachine
	}{
		"Machine with a node reference has the node name of the reference": {
			map[string]any{"status": map[string]any{"nodeRef": map[string]any{"kind": "Node", "name": "worker-0"}, "addresses": []any{internalDNS, internalIP}}},
			csr.KnownMachine{NodeName: "worker-0", Addresses: both},
		},
		"Machine without a node reference has its internal DNS name as the node name": {
			map[string]any{"status": map[string]any{"addresses": []any{internalDNS, internalIP}}},
			csr.KnownMachine{NodeName: "ip-10-0-0-1.ec2.internal", Addresses: both},
		},
		"Machine with the role master belongs to the control plane": {
			map[string]any{
				"metadata": map[string]any{"labels": map[string]any{roleLabel: "master"}},
				"status":   map[string]any{"nodeRef": map[string]any{"name": "master-0"}},
			},
			csr.KnownMachine{NodeName: "master-0", ControlPlane: true},
		},
		"Machine with the role worker does not belong to the control plane": {
			map[string]any{"metadata": map[string]any{"labels": map[string]any{roleLabel: "worker"}}},
			csr.KnownMachine{},
		},
		"Machine that is being deleted is recorded as deleting": {
			map[string]any{
				"metadata": map[string]any{"deletionTimestamp": "2026-07-01T12:00:00Z"},
				"status":   map[string]any{"nodeRef": map[string]any{"name": "worker-0"}},
			},
			csr.KnownMachine{NodeName: "worker-0", Deleting: true},
		},
		"Machine without a status has no node name":                                      {map[string]any{}, csr.KnownMachine{}},
		"malformed Machine has no node name":                                             {map[string]any{"status": "fine"}, csr.KnownMachine{}},
		"Machine with a malformed node reference has no node name":                       {map[string]any{"status": map[string]any{"nodeRef": "worker-0", "addresses": []any{internalDNS}}}, csr.KnownMachine{}},
		"Machine with malformed addresses has no node name":                              {map[string]any{"status": map[string]any{"addresses": "10.0.0.1"}}, csr.KnownMachine{}},
		"Machine with only an external DNS name has no node name":                        {map[string]any{"status": map[string]any{"addresses": []any{map[string]any{"type": "ExternalDNS", "address": "a.b"}}}}, csr.KnownMachine{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalDNS, Address: "a.b"}}}},
		"Machine with an empty node reference and an internal DNS name has no node name": {map[string]any{"status": map[string]any{"nodeRef": map[string]any{}, "addresses": []any{internalDNS}}}, csr.KnownMachine{Addresses: both[:1]}},
	} {
		t.Run(name, func(t *testing.T) {
			item, err := json.Marshal(row.object)
			must(t, err)
			if diff := cmp.Diff(row.want, decodeMachine(item).known); diff != "" {
				t.Errorf("machine (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyRecreatedMachinesAreReplaceable(t *testing.T) {
	build := func(change func(metadata, spec map[string]any)) []byte {
		metadata := map[string]any{
			"name": "worker-0", "uid": "uid-0", "labels": map[string]any{interruptibleLabel: ""},
			"ownerReferences": []any{map[string]any{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "workers", "uid": "uid-s", "controller": true}},
		}
		spec := map[string]any{"providerID": "aws:///eu-central-1a/i-0"}
		if change != nil {
			change(metadata, spec)
		}
		item, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
		must(t, err)
		return item
	}
	owner := func(m map[string]any) map[string]any {
		owners, _ := m["ownerReferences"].([]any)
		first, _ := owners[0].(map[string]any)
		return first
	}
	want := []hibernation.ReplaceableMachine{{ID: "i-0", Name: "worker-0", UID: "uid-0"}}
	if got := replaceableMachines([]decodedMachine{decodeMachine(build(nil))}); !cmp.Equal(got, want) {
		t.Errorf("expected %+v, found %+v", want, got)
	}
	for name, change := range map[string]func(metadata, spec map[string]any){
		"Machine that is not a spot machine is not replaceable":               func(m, _ map[string]any) { m["labels"] = map[string]any{} },
		"Machine of the control plane is not replaceable":                     func(m, _ map[string]any) { m["labels"] = map[string]any{interruptibleLabel: "", roleLabel: roleMaster} },
		"Machine that is being deleted is not replaceable":                    func(m, _ map[string]any) { m["deletionTimestamp"] = "2026-07-01T12:00:00Z" },
		"Machine without an owner is not replaceable":                         func(m, _ map[string]any) { delete(m, "ownerReferences") },
		"Machine with an owner of another kind is not replaceable":            func(m, _ map[string]any) { owner(m)["kind"] = "Machine" },
		"Machine with an owner in another group is not replaceable":           func(m, _ map[string]any) { owner(m)["apiVersion"] = "apps/v1" },
		"Machine with an owner that is not its controller is not replaceable": func(m, _ map[string]any) { owner(m)["controller"] = false },
		"Machine with malformed owners is not replaceable":                    func(m, _ map[string]any) { m["ownerReferences"] = "workers" },
		"Machine without a provider ID is not replaceable":                    func(_, s map[string]any) { delete(s, "providerID") },
		"Machine in another cloud is not replaceable":                         func(_, s map[string]any) { s["providerID"] = "gce:///eu-central-1a/i-0" },
		"Machine with a provider ID without a zone is not replaceable":        func(_, s map[string]any) { s["providerID"] = "aws:///i-0" },
		"Machine with a longer provider ID is not replaceable":                func(_, s map[string]any) { s["providerID"] = "aws:///eu-central-1a/i-0/x" },
		"Machine with an instance id beyond the limit is not replaceable":     func(_, s map[string]any) { s["providerID"] = "aws:///a/" + strings.Repeat("i", maxInstanceIDBytes+1) },
		"Machine name with a path traversal is not replaceable":               func(m, _ map[string]any) { m["name"] = "../../nodes/worker-0" },
		"Machine without a UID is not replaceable":                            func(m, _ map[string]any) { delete(m, "uid") },
	} {
		t.Run(name, func(t *testing.T) {
			if got := replaceableMachines([]decodedMachine{decodeMachine(build(change))}); len(got) > 0 {
				t.Errorf("expected none, found %+v", got)
			}
		})
	}
	t.Run("instance of two Machines is not replaceable", func(t *testing.T) {
		other := decodeMachine(build(func(m, _ map[string]any) { m["name"], m["labels"] = "master-0", map[string]any{roleLabel: roleMaster} }))
		if got := replaceableMachines([]decodedMachine{decodeMachine(build(nil)), other}); len(got) > 0 {
			t.Errorf("expected none, found %+v", got)
		}
	})
}
