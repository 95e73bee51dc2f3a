// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/torpor-dev/torpor/actuator"
)

// Observe implements actuator.Actuator. A cluster without machines is no error here.
func (a *Actuator) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	const largestPage = 1000
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return nil, err
	}
	if t.InfraID == "" {
		return nil, otherErrorf("the infraID is empty, and machines are found by it: set spec.clusterMetadata.infraID")
	}
	tag := "kubernetes.io/cluster/" + t.InfraID
	pages := ec2.NewDescribeInstancesPaginator(c.api, &ec2.DescribeInstancesInput{
		Filters:    []types.Filter{{Name: awssdk.String("tag:" + tag), Values: []string{"owned"}}},
		MaxResults: awssdk.Int32(largestPage),
	})
	var machines []actuator.Machine
	// Every page is read before anything is decided: a machine on a page that is missing would look gone, and the cluster
	// would count as stopped while it runs.
	for pages.HasMorePages() {
		var page *ec2.DescribeInstancesOutput
		err := c.callWithTimeout(ctx, "DescribeInstances", func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		found, err := ownedMachines(page, tag)
		if err != nil {
			return nil, err
		}
		machines = append(machines, found...)
	}
	slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	return machines, nil
}

// ownedMachines returns the machines of a page.
func ownedMachines(page *ec2.DescribeInstancesOutput, tag string) ([]actuator.Machine, error) {
	var machines []actuator.Machine
	for _, reservation := range page.Reservations {
		for _, i := range reservation.Instances {
			// The tag is looked at again: what is returned may be stopped, and an endpoint that ignores the filter must not
			// widen it to the machines of others.
			if tagValue(i, tag) != "owned" || isTerminated(i) {
				continue
			}
			state, ok := stateOf(i)
			if !ok {
				return nil, otherErrorf("DescribeInstances: %s is in a state that this version of Torpor does not know: update Torpor",
					awssdk.ToString(i.InstanceId))
			}
			machines = append(machines, actuator.Machine{
				ID: awssdk.ToString(i.InstanceId), Name: tagValue(i, "Name"), State: state,
			})
		}
	}
	return machines, nil
}

func tagValue(i types.Instance, key string) string {
	for _, tag := range i.Tags {
		if awssdk.ToString(tag.Key) == key {
			return awssdk.ToString(tag.Value)
		}
	}
	return ""
}

func isTerminated(i types.Instance) bool {
	return i.State != nil &&
		(i.State.Name == types.InstanceStateNameTerminated || i.State.Name == types.InstanceStateNameShuttingDown)
}

func stateOf(i types.Instance) (actuator.MachineState, bool) {
	if i.State == nil {
		return "", false
	}
	state, ok := map[types.InstanceStateName]actuator.MachineState{
		types.InstanceStateNamePending:  actuator.Starting,
		types.InstanceStateNameRunning:  actuator.Running,
		types.InstanceStateNameStopping: actuator.Stopping,
		types.InstanceStateNameStopped:  actuator.Stopped,
	}[i.State.Name]
	return state, ok
}
