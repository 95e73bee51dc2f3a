// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// BareMetalPlatform identifies a cluster of physical machines, which are switched off and on by their management
// controllers. Machines lists its machines. Hive's field of the same name has no such list; Torpor does not stop or
// start a cluster without it.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BareMetalPlatform struct {
	// CredentialsSecretRef references the Secret with the keys username and password for all controllers, or
	// NAME.username and NAME.password for single machines, and optionally ca.crt, the CA of their certificates.
	// +optional
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef,omitempty"`
	// Machines are all machines of the cluster.
	// +kubebuilder:validation:MaxItems=500
	// +listType=map
	// +listMapKey=name
	// +optional
	Machines []BareMetalMachine `json:"machines,omitempty"`
}

// BareMetalMachine is a physical machine.
type BareMetalMachine struct {
	// Name is the name of the machine, preferably the name of its node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// BMC is the address of the machine's management controller: redfish+https://HOST/redfish/v1/Systems/ID or ipmi://HOST.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(redfish|redfish\+https|ipmi)://.+$`
	BMC string `json:"bmc"`
}

func (p BareMetalPlatform) settings(ClusterMetadata) PlatformSettings {
	s := PlatformSettings{Name: "baremetal", CredentialsSecretName: p.CredentialsSecretRef.Name, ListedMachines: p.Machines}
	if len(p.Machines) == 0 {
		s.Missing = []string{"spec.platform.baremetal.machines"}
	}
	s.Missing = append(s.Missing, emptyFields("spec.platform.baremetal.credentialsSecretRef.name", p.CredentialsSecretRef.Name)...)
	var addresses []string
	for _, m := range p.Machines {
		addresses = append(addresses, m.BMC)
	}
	slices.Sort(addresses)
	// The text in Machines must not depend on the order of the list: two ClusterDeployments with the same machines must
	// have the same text.
	if sum := sha256.Sum256([]byte(strings.Join(addresses, "\n"))); len(addresses) > 0 {
		s.Machines = fmt.Sprintf("the %d controllers %.60s… (%s)", len(addresses), addresses[0], hex.EncodeToString(sum[:])[:16])
	}
	return s
}
