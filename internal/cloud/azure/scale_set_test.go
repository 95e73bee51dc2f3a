// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestAMemberOfAScaleSetHasTheNameOfTheSet(t *testing.T) {
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/workers"
	member := &armcompute.VirtualMachine{Properties: &armcompute.VirtualMachineProperties{
		VirtualMachineScaleSet: &armcompute.SubResource{ID: new(id)},
	}}
	testenv.ExpectEqual(t, "scale set", "workers", scaleSetOf(member))
	testenv.ExpectEqual(t, "scale set of a machine without one", "", scaleSetOf(&armcompute.VirtualMachine{}))
}
