// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/torpor-dev/torpor/actuator"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestMissingReservations(t *testing.T) {
	const (
		reservation, only, open = "cr-0123", types.CapacityReservationPreferenceCapacityReservationsOnly, types.CapacityReservationPreferenceOpen
		running                 = types.InstanceStateNameRunning
	)
	target := &types.CapacityReservationTargetResponse{CapacityReservationId: awssdk.String(reservation)}
	group := &types.CapacityReservationTargetResponse{CapacityReservationResourceGroupArn: awssdk.String("arn:aws:resource-groups:a:1:group/g")}
	for name, row := range map[string]struct {
		state  types.InstanceStateName
		wanted *types.CapacityReservationSpecificationResponse
		used   string
		want   string
	}{
		"instance in its reservation: none missing":                         {running, &types.CapacityReservationSpecificationResponse{CapacityReservationTarget: target}, reservation, ""},
		"instance outside of its reservation: missing":                      {running, &types.CapacityReservationSpecificationResponse{CapacityReservationTarget: target}, "", reservation},
		"stopped instance: none missing":                                    {types.InstanceStateNameStopped, &types.CapacityReservationSpecificationResponse{CapacityReservationTarget: target}, "", ""},
		"instance that targets a group of reservations: none missing":       {running, &types.CapacityReservationSpecificationResponse{CapacityReservationTarget: group}, "", ""},
		"instance that prefers a reservation: none missing":                 {running, &types.CapacityReservationSpecificationResponse{CapacityReservationPreference: open}, "", ""},
		"instance that requires any reservation and uses none: missing":     {running, &types.CapacityReservationSpecificationResponse{CapacityReservationPreference: only}, "", string(only)},
		"instance that requires any reservation and uses one: none missing": {running, &types.CapacityReservationSpecificationResponse{CapacityReservationPreference: only}, reservation, ""},
		"instance of a cloud without reservations: none missing":            {running, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := types.Instance{State: &types.InstanceState{Name: row.state}, CapacityReservationSpecification: row.wanted, CapacityReservationId: awssdk.String(row.used)}
			testenv.ExpectEqual(t, "missing reservation", row.want, missingReservationOf(i))
		})
	}
}

// TestCancelledReservationsAreReported uses two machines, one of which requires a reservation. After the reservation is
// cancelled, this machine does not start again.
func TestCancelledReservationsAreReported(t *testing.T) {
	c := startCloud(t).newCluster(t)
	ids := c.Create(t, 2)
	expect := func(want ...string) {
		t.Helper()
		machines, err := c.cloud.actuator.Observe(t.Context(), c.Target())
		testenv.ExpectNoError(t, err)
		missing := map[string]string{}
		for _, m := range machines {
			missing[m.ID] = m.MissingReservation
		}
		testenv.ExpectEqual(t, "missing reservations", want, []string{missing[ids[0]], missing[ids[1]]})
	}
	c.cloud.RequireReservation(t, ids[0], "cr-0123")
	expect("", "")
	c.cloud.CancelReservation(t, ids[0])
	expect("cr-0123", "")
	testenv.ExpectNoError(t, c.cloud.actuator.Stop(t.Context(), c.Target(), ids))
	c.Settle(t)
	expect("", "")
	if err := c.cloud.actuator.Start(t.Context(), c.Target(), ids); actuator.ClassOf(err) != actuator.NoCapacity {
		t.Errorf("expected an error of the class %q, found %v", actuator.NoCapacity, err)
	}
}
