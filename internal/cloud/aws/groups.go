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

	"github.com/torpor-dev/torpor/actuator"
)

// heldProcesses returns the processes of an Auto Scaling group that terminate or launch instances, or change the
// group's size. AddToLoadBalancer does neither:
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-suspend-resume-processes.html
func heldProcesses() []string {
	return []string{"AZRebalance", "AlarmNotification", "HealthCheck", "InstanceRefresh", "Launch", "ReplaceUnhealthy", "ScheduledActions", "Terminate"}
}

const (
	// maxGroupsPerCall is the largest page of DescribeAutoScalingGroups.
	maxGroupsPerCall = 100
	// nodeGroupTag is the tag on the group of an EKS managed node group.
	nodeGroupTag = "eks:nodegroup-name"

	describeGroups = "DescribeAutoScalingGroups"
)

// ObserveGroups implements actuator.GroupActuator.
func (a *Actuator) ObserveGroups(ctx context.Context, t actuator.Target, names []string) ([]actuator.Group, error) {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return nil, err
	}
	var groups []actuator.Group
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
			return nil, c.unreachableError(describeGroups, "the answer has more groups than were requested")
		}
		for _, found := range page.AutoScalingGroups {
			// The endpoint may be hostile, so only requested groups count.
			if slices.Contains(some, awssdk.ToString(found.AutoScalingGroupName)) {
				groups = append(groups, describeGroup(found))
			}
		}
	}
	slices.SortFunc(groups, func(a, b actuator.Group) int { return cmp.Compare(a.Name, b.Name) })
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
	// EKS would reset the size of its groups. The size does not change if the group's instances are neither
	// terminated nor launched.
	for _, tag := range found.Tags {
		if awssdk.ToString(tag.Key) == nodeGroupTag {
			g.Unscalable = "an EKS node group sets its size"
		}
	}
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

// changeGroup changes one group. Each change is one call, which the cloud applies completely or not at all. The SDK
// does not repeat calls, because a caller must first check that the change is still wanted.
func (c *accountClient) changeGroup(ctx context.Context, change actuator.GroupChange) error {
	once := func(o *autoscaling.Options) { o.Retryer = awssdk.NopRetryer{} }
	name := "of the group " + change.Name
	if len(change.Suspend) > 0 {
		if err := c.callWithTimeout(ctx, "SuspendProcesses "+name, func(ctx context.Context) error {
			_, err := c.scaling.SuspendProcesses(ctx, &autoscaling.SuspendProcessesInput{AutoScalingGroupName: &change.Name, ScalingProcesses: change.Suspend}, once)
			return err
		}); err != nil {
			return err
		}
	}
	if size := change.Size; size != nil {
		if err := c.callWithTimeout(ctx, "UpdateAutoScalingGroup "+name, func(ctx context.Context) error {
			_, err := c.scaling.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
				AutoScalingGroupName: &change.Name, MinSize: &size.Min, DesiredCapacity: &size.Desired,
			}, once)
			return err
		}); err != nil {
			return err
		}
	}
	if len(change.Resume) == 0 {
		return nil
	}
	return c.callWithTimeout(ctx, "ResumeProcesses "+name, func(ctx context.Context) error {
		_, err := c.scaling.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{AutoScalingGroupName: &change.Name, ScalingProcesses: change.Resume}, once)
		return err
	})
}
