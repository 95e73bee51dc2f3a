// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/hibernation/csr"
)

const (
	machinesPath = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines"
	// machineConfigPath is served by OpenShift also where it has no Machines.
	machineConfigPath = "/apis/machineconfiguration.openshift.io"
	// roleLabel marks the control-plane Machines of OpenShift.
	roleLabel  = "machine.openshift.io/cluster-api-machine-role"
	roleMaster = "master"
)

// ListMachines returns the OpenShift Machines of the cluster, and whether it is of OpenShift, with or without them.
func (c *ClusterClient) ListMachines(ctx context.Context) (machines []csr.KnownMachine, isOpenShift bool, err error) {
	err = c.listItems(ctx, machinesPath, func(item []byte) error {
		machines = append(machines, decodeMachine(item))
		return nil
	})
	switch {
	case err == nil:
		return machines, true, nil
	case !k8serrors.IsNotFound(err):
		return nil, false, fmt.Errorf("list Machines: %w", err)
	}
	err = c.discardAnswer(ctx, c.rest.Get().AbsPath(machineConfigPath))
	switch {
	case err == nil:
		return nil, true, nil
	case !k8serrors.IsNotFound(err):
		return nil, false, fmt.Errorf("look for OpenShift: %w", err)
	}
	return nil, false, nil
}

// decodeMachine reads the few fields of a Machine that matter; one that does not look like a Machine takes no node.
func decodeMachine(item []byte) csr.KnownMachine {
	var fields struct {
		Metadata objectMetadata `json:"metadata"`
		Status   struct {
			NodeRef *struct {
				Name string `json:"name"`
			} `json:"nodeRef"`
			Addresses json.RawMessage `json:"addresses"`
		} `json:"status"`
	}
	if err := json.Unmarshal(item, &fields); err != nil {
		return csr.KnownMachine{}
	}
	addresses, err := decodeInnerList[corev1.NodeAddress](fields.Status.Addresses)
	if err != nil {
		return csr.KnownMachine{}
	}
	m := csr.KnownMachine{
		Addresses: addresses, Deleting: fields.Metadata.DeletionTimestamp != nil,
		ControlPlane: fields.Metadata.Labels[roleLabel] == roleMaster,
	}
	if fields.Status.NodeRef != nil {
		m.NodeName = fields.Status.NodeRef.Name
		return m
	}
	// A Machine whose node has not joined yet has no reference; on AWS the node will be named after the internal DNS name.
	for _, a := range addresses {
		if a.Type == corev1.NodeInternalDNS {
			m.NodeName = a.Address
		}
	}
	return m
}
