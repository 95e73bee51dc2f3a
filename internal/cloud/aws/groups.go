// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
)

// heldProcesses returns the processes of an Auto Scaling group that terminate or launch instances, or change the
// group's size. AddToLoadBalancer does none of these:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-suspend-resume-processes.html
func heldProcesses() []string {
	return []string{"AZRebalance", "AlarmNotification", "HealthCheck", "InstanceRefresh", "Launch", "ReplaceUnhealthy", "ScheduledActions", "Terminate"}
}

const (
	// maxGroupsPerCall is the largest page of DescribeAutoScalingGroups.
	maxGroupsPerCall = 100
	describeGroups   = "DescribeAutoScalingGroups"
)

// ObserveGroups implements actuator.GroupActuator.
func (a *Actuator) ObserveGroups(ctx context.Context, t actuator.Target, queries []actuator.GroupQuery) ([]actuator.Group, error) {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return nil, err
	}
	var names []string
	wantsSize := map[string]bool{}
	for _, q := range queries {
		names, wantsSize[q.Name] = append(names, q.Name), q.WantsSize
	}
	found, err := c.describeGroups(ctx, names)
	if err != nil {
		return nil, err
	}
	groups := make([]actuator.Group, len(found))
	var calls errgroup.Group
	calls.SetLimit(parallelCalls)
	for i, g := range found {
		groups[i] = describeGroup(g)
		if owner, isOwned := nodeGroupOf(g); isOwned && wantsSize[groups[i].Name] {
			calls.Go(func() error { return c.readNodeGroup(ctx, owner, &groups[i]) })
		}
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(groups, func(a, b actuator.Group) int { return cmp.Compare(a.Name, b.Name) })
	return groups, nil
}

// describeGroups returns the existing groups with the given names.
func (c *accountClient) describeGroups(ctx context.Context, names []string) ([]scalingtypes.AutoScalingGroup, error) {
	var groups []scalingtypes.AutoScalingGroup
	for some := range slices.Chunk(names, maxGroupsPerCall) {
		var page *autoscaling.DescribeAutoScalingGroupsOutput
		err := c.callWithTimeout(ctx, describeGroups, func(ctx context.Context) (err error) {
			page, err = c.scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
				AutoScalingGroupNames: some, MaxRecords: awssdk.Int32(maxGroupsPerCall),
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		if page.NextToken != nil {
			return nil, c.unreachableError(describeGroups, "the response has more groups than were requested")
		}
		for _, found := range page.AutoScalingGroups {
			// The endpoint may be hostile, so only requested groups count.
			if slices.Contains(some, awssdk.ToString(found.AutoScalingGroupName)) {
				groups = append(groups, found)
			}
		}
	}
	return groups, nil
}

func describeGroup(found scalingtypes.AutoScalingGroup) actuator.Group {
	g := actuator.Group{
		Name: awssdk.ToString(found.AutoScalingGroupName), Processes: heldProcesses(),
		Min: awssdk.ToInt32(found.MinSize), Desired: awssdk.ToInt32(found.DesiredCapacity),
	}
	for _, process := range found.SuspendedProcesses {
		if name := awssdk.ToString(process.ProcessName); slices.Contains(g.Processes, name) && !slices.Contains(g.Suspended, name) {
			g.Suspended = append(g.Suspended, name)
		}
	}
	slices.Sort(g.Suspended)
	for _, member := range found.Instances {
		if member.LifecycleState == scalingtypes.LifecycleStateInService {
			g.InService++
		}
	}
	// A new size takes effect only if the group can launch and terminate instances.
	for _, process := range []string{"Launch", "Terminate"} {
		if slices.Contains(g.Suspended, process) {
			g.Unscalable = cmp.Or(g.Unscalable, "its process "+process+" is suspended")
		}
	}
	return g
}

// ChangeGroups implements actuator.GroupActuator.
func (a *Actuator) ChangeGroups(ctx context.Context, t actuator.Target, changes []actuator.GroupChange) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	var first *actuator.Error
	var refused []string
	for _, change := range changes {
		err := c.changeGroup(ctx, change)
		if err == nil {
			continue
		}
		known, ok := errors.AsType[*actuator.Error](err)
		if !ok {
			return err
		}
		if first == nil {
			first = known
		}
		refused = append(refused, change.Name)
	}
	if first == nil {
		return nil
	}
	return &actuator.Error{Class: first.Class, Message: first.Message, RefusedIDs: refused, RetryAfter: first.RetryAfter}
}

// scaleOnce disables the SDK's retries for a call. Before a caller repeats a call, it must check that the change is
// still wanted.
func scaleOnce(o *autoscaling.Options) { o.Retryer = awssdk.NopRetryer{} }

// changeGroup changes one group. Suspending, resizing and resuming are separate calls, each of which the cloud applies
// completely or not at all.
func (c *accountClient) changeGroup(ctx context.Context, change actuator.GroupChange) error {
	name := "of the group " + change.Name
	if len(change.Suspend) > 0 {
		if err := c.callWithTimeout(ctx, "SuspendProcesses "+name, func(ctx context.Context) error {
			asked := &autoscaling.SuspendProcessesInput{AutoScalingGroupName: &change.Name, ScalingProcesses: change.Suspend}
			_, err := c.scaling.SuspendProcesses(ctx, asked, scaleOnce)
			return err
		}); err != nil {
			return err
		}
	}
	if size := change.Size; size != nil {
		if err := c.resizeGroup(ctx, change.Name, *size); err != nil {
			return err
		}
	}
	if len(change.Resume) == 0 {
		return nil
	}
	return c.callWithTimeout(ctx, "ResumeProcesses "+name, func(ctx context.Context) error {
		asked := &autoscaling.ResumeProcessesInput{AutoScalingGroupName: &change.Name, ScalingProcesses: change.Resume}
		_, err := c.scaling.ResumeProcesses(ctx, asked, scaleOnce)
		return err
	})
}

// resizeGroup sets the size of a group. If the group belongs to a node group of EKS, it sets the size of the node
// group, because EKS reverts other changes.
func (c *accountClient) resizeGroup(ctx context.Context, name string, size actuator.GroupSize) error {
	found, err := c.describeGroups(ctx, []string{name})
	if err != nil {
		return err
	}
	for _, g := range found {
		if owner, isOwned := nodeGroupOf(g); isOwned {
			return c.resizeNodeGroup(ctx, owner, size)
		}
	}
	return c.callWithTimeout(ctx, "UpdateAutoScalingGroup of the group "+name, func(ctx context.Context) error {
		_, err := c.scaling.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: &name, MinSize: &size.Min, DesiredCapacity: &size.Desired,
		}, scaleOnce)
		return err
	})
}
