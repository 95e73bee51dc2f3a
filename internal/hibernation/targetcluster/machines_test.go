// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/torpor-dev/torpor/internal/hibernation/csr"
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
			item, err := json.Marshal(row.object)
			must(t, err)
			if diff := cmp.Diff(row.want, decodeMachine(item)); diff != "" {
				t.Errorf("machine (-want +got):\n%s", diff)
			}
		})
	}
}
