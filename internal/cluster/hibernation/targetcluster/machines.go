// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/csr"
)

const (
	machineGroup = "machine.openshift.io"
	machinesPath = "/apis/" + machineGroup + "/v1beta1/namespaces/openshift-machine-api/machines"
	// machineConfigPath is served by OpenShift even without Machines.
	machineConfigPath = "/apis/machineconfiguration.openshift.io"
	// roleLabel holds the role of a Machine of OpenShift.
	roleLabel  = "machine.openshift.io/cluster-api-machine-role"
	roleMaster = "master"
	// interruptibleLabel marks Machines that are spot machines.
	interruptibleLabel = "machine.openshift.io/interruptible-instance"
	// withoutDrainAnnotation makes OpenShift delete a Machine without draining its node, which no longer exists.
	withoutDrainAnnotation = "machine.openshift.io/exclude-node-draining"
	// maxInstanceIDBytes is the limit in the hibernation record.
	maxInstanceIDBytes = 64
	// maxMachineAddresses is several times the number of addresses that clouds list for a machine. A Machine with
	// more addresses is not matched to a node.
	maxMachineAddresses = 64
	// maxMachinesBytes limits the memory of all Machines: 5,000 Machines with at least a dozen addresses each.
	maxMachinesBytes = 16 << 20
	// machineOverhead is more than the fixed size of a Machine in memory.
	machineOverhead = 256
)

// Machines are a cluster's OpenShift Machines.
type Machines struct {
	Known []csr.KnownMachine
	// Replaceable are the spot Machines that the cluster replaces when they are deleted.
	Replaceable []hibernation.ReplaceableMachine
	// IsOpenShift is true if the cluster is an OpenShift cluster, with or without Machines.
	IsOpenShift bool
}

// ListMachines returns the cluster's OpenShift Machines.
func (c *ClusterClient) ListMachines(ctx context.Context) (Machines, error) {
	var all []decodedMachine
	size := 0
	err := c.listItems(ctx, machinesPath, func(item []byte) error {
		machine := decodeMachine(item)
		if size += sizeOfMachine(machine); size > maxMachinesBytes {
			return errTooMuchToKeep
		}
		all = append(all, machine)
		return nil
	})
	switch {
	case err == nil:
		return Machines{Known: knownMachines(all), Replaceable: replaceableMachines(all), IsOpenShift: true}, nil
	case !k8serrors.IsNotFound(err):
		return Machines{}, fmt.Errorf("list Machines: %w", err)
	}
	err = c.discardAnswer(ctx, c.rest.Get().AbsPath(machineConfigPath))
	switch {
	case err == nil:
		return Machines{IsOpenShift: true}, nil
	case !k8serrors.IsNotFound(err):
		return Machines{}, fmt.Errorf("determine whether the cluster runs OpenShift: %w", err)
	}
	return Machines{}, nil
}

// decodedMachine contains the relevant fields of a Machine.
type decodedMachine struct {
	known csr.KnownMachine
	// instance is the cloud's id of the machine; empty while the Machine has no id, and on clouds other than AWS.
	instance string
	// replaceable is nil if the machine must not be terminated.
	replaceable *hibernation.ReplaceableMachine
}

// sizeOfMachine returns an upper bound of a Machine's memory.
func sizeOfMachine(m decodedMachine) int {
	size := machineOverhead + len(m.known.NodeName) + len(m.instance)
	if m.replaceable != nil {
		size += len(m.replaceable.Name) + len(m.replaceable.UID)
	}
	for _, a := range m.known.Addresses {
		size += elementOverhead + len(a.Type) + len(a.Address)
	}
	return size
}

func knownMachines(all []decodedMachine) []csr.KnownMachine {
	var known []csr.KnownMachine
	for _, m := range all {
		known = append(known, m.known)
	}
	return known
}

// replaceableMachines returns the replaceable Machines. It omits Machines that claim the same instance as another one.
func replaceableMachines(all []decodedMachine) []hibernation.ReplaceableMachine {
	claims := map[string]int{}
	for _, m := range all {
		claims[m.instance]++
	}
	var replaceable []hibernation.ReplaceableMachine
	for _, m := range all {
		if m.replaceable != nil && claims[m.instance] == 1 {
			replaceable = append(replaceable, *m.replaceable)
		}
	}
	return replaceable
}

// machineFields are the few relevant fields of a Machine.
type machineFields struct {
	Metadata struct {
		objectMetadata

		OwnerReferences json.RawMessage `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
	Status struct {
		NodeRef *struct {
			Name string `json:"name"`
		} `json:"nodeRef"`
		Addresses json.RawMessage `json:"addresses"`
	} `json:"status"`
}

// decodeMachine reads the relevant fields of a Machine. A malformed Machine is not matched to a node.
func decodeMachine(item []byte) decodedMachine {
	var fields machineFields
	if err := json.Unmarshal(item, &fields); err != nil {
		return decodedMachine{}
	}
	return decodedMachine{known: fields.known(), instance: instanceOf(fields.Spec.ProviderID), replaceable: fields.replaceable()}
}

// instanceOf returns the instance ID in a provider ID. It is empty unless the provider ID has the form of AWS, because
// only such machines may be terminated.
func instanceOf(providerID string) string {
	place, isAWS := strings.CutPrefix(providerID, "aws:///")
	_, id, hasZone := strings.Cut(place, "/")
	if !isAWS || !hasZone || strings.Contains(id, "/") || len(id) > maxInstanceIDBytes {
		return ""
	}
	return id
}

// replaceable returns nil if the machine of this Machine must not be terminated: it is not a spot machine, is part of
// the control plane, has no MachineSet that would replace it, or is being deleted already.
func (f machineFields) replaceable() *hibernation.ReplaceableMachine {
	_, isSpot := f.Metadata.Labels[interruptibleLabel]
	m := hibernation.ReplaceableMachine{ID: instanceOf(f.Spec.ProviderID), Name: f.Metadata.Name, UID: f.Metadata.UID}
	if !isSpot || f.Metadata.Labels[roleLabel] == roleMaster || f.Metadata.DeletionTimestamp != nil || !f.isOfMachineSet() ||
		m.ID == "" || m.UID == "" || len(validation.NameIsDNSSubdomain(m.Name, false)) > 0 {
		return nil
	}
	return &m
}

func (f machineFields) isOfMachineSet() bool {
	owners, err := decodeInnerList[metav1.OwnerReference](f.Metadata.OwnerReferences)
	return err == nil && slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool {
		return o.Kind == "MachineSet" && o.Controller != nil && *o.Controller && strings.HasPrefix(o.APIVersion, machineGroup+"/")
	})
}

func (f machineFields) known() csr.KnownMachine {
	addresses, err := decodeInnerList[corev1.NodeAddress](f.Status.Addresses)
	if err != nil || len(addresses) > maxMachineAddresses {
		return csr.KnownMachine{}
	}
	m := csr.KnownMachine{
		Addresses: addresses, Deleting: f.Metadata.DeletionTimestamp != nil,
		ControlPlane: f.Metadata.Labels[roleLabel] == roleMaster,
	}
	if f.Status.NodeRef != nil {
		m.NodeName = f.Status.NodeRef.Name
		return m
	}
	// A Machine has no reference to its node before the node has joined. On AWS, the name of the node is the internal
	// DNS name.
	for _, a := range addresses {
		if a.Type == corev1.NodeInternalDNS {
			m.NodeName = a.Address
		}
	}
	return m
}

// ReplaceMachine deletes a Machine, so its MachineSet creates a new one. A deleted or replaced Machine is not an
// error.
func (c *ClusterClient) ReplaceMachine(ctx context.Context, m hibernation.ReplaceableMachine) error {
	// The patch contains the UID of the observed Machine. The API server rejects it with a conflict if the Machine
	// was replaced in between.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.UID, "annotations": map[string]string{withoutDrainAnnotation: "true"}}})
	if err != nil {
		return fmt.Errorf("write annotation: %w", err)
	}
	options, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: metav1.NewUIDPreconditions(m.UID),
	})
	if err != nil {
		return fmt.Errorf("write preconditions: %w", err)
	}
	err = c.discardAnswer(ctx, c.rest.Patch(types.MergePatchType).AbsPath(machinesPath, m.Name).Body(patch))
	if err == nil {
		err = c.discardAnswer(ctx, c.rest.Delete().AbsPath(machinesPath, m.Name).SetHeader("Content-Type", "application/json").Body(options))
	}
	if ignoreDecided(err) != nil {
		return fmt.Errorf("delete Machine %s: %w", m.Name, err)
	}
	return nil
}
