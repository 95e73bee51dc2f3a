// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/torpor-dev/torpor/actuator"
)

// EKS tags the Auto Scaling group of a managed node group with the names of the node group and of its cluster.
const (
	nodeGroupTag  = "eks:nodegroup-name"
	eksClusterTag = "eks:cluster-name"

	describeNodegroup = "DescribeNodegroup"
)

// nodeGroup is a managed node group of EKS.
type nodeGroup struct {
	cluster, name string
	// group is the name of the node group's Auto Scaling group.
	group string
}

// String returns the text that messages contain.
func (n nodeGroup) String() string { return "node group " + n.cluster + "/" + n.name }

// nodeGroupOf returns the node group that sets the size of an Auto Scaling group.
func nodeGroupOf(g scalingtypes.AutoScalingGroup) (found nodeGroup, isOwned bool) {
	found.group = awssdk.ToString(g.AutoScalingGroupName)
	for _, tag := range g.Tags {
		value := awssdk.ToString(tag.Value)
		value = strings.ToValidUTF8(value[:min(len(value), maxNameBytes)], "")
		switch awssdk.ToString(tag.Key) {
		case nodeGroupTag:
			found.name, isOwned = value, true
		case eksClusterTag:
			found.cluster = value
		}
	}
	return found, isOwned
}

// readNodeGroup replaces the size in g with the size of the node group owner. If only this node group cannot be read,
// it records the reason in g. It returns an error if the whole poll must fail.
func (c *accountClient) readNodeGroup(ctx context.Context, owner nodeGroup, g *actuator.Group) error {
	g.Manager = "EKS " + owner.String()
	found, err := c.describeNodeGroup(ctx, owner)
	if err != nil {
		known, ok := errors.AsType[*actuator.Error](err)
		if !ok || isOfAccount(known.Class) {
			return err
		}
		g.Unsettled = "its EKS " + owner.String() + " cannot be read: " + known.Message
		g.Unscalable = g.Unsettled
		return nil
	}
	size := found.ScalingConfig
	g.Min, g.Desired = awssdk.ToInt32(size.MinSize), awssdk.ToInt32(size.DesiredSize)
	if found.Status == ekstypes.NodegroupStatusUpdating {
		g.Unsettled = "EKS is updating its " + owner.String()
		g.Unscalable = g.Unsettled
	}
	return nil
}

// isOfAccount reports whether an error of one node group prevents the poll of the account. A missing permission does
// not, because permissions may be limited to single node groups. Nor does an unreachable API, because a network may
// reach EC2 but not EKS.
func isOfAccount(class actuator.ErrorClass) bool {
	return class == actuator.CredentialsInvalid || class == actuator.Throttled
}

func (c *accountClient) describeNodeGroup(ctx context.Context, n nodeGroup) (*ekstypes.Nodegroup, error) {
	if n.cluster == "" || n.name == "" {
		return nil, actuator.Errorf(actuator.Other, "the Auto Scaling group must have the tags %s and %s", eksClusterTag, nodeGroupTag)
	}
	var answer *eks.DescribeNodegroupOutput
	err := c.callWithTimeout(ctx, describeNodegroup, func(ctx context.Context) (err error) {
		answer, err = c.eks.DescribeNodegroup(ctx, &eks.DescribeNodegroupInput{ClusterName: &n.cluster, NodegroupName: &n.name})
		return err
	})
	if err != nil {
		return nil, err
	}
	found := answer.Nodegroup
	if found == nil || found.ScalingConfig == nil || found.ScalingConfig.MinSize == nil || found.ScalingConfig.DesiredSize == nil {
		return nil, actuator.Errorf(actuator.Other, "%s: expected the size of the node group, found none", describeNodegroup)
	}
	// Users can write these tags, too. The tags must not select a node group with a different Auto Scaling group.
	if parts := found.Resources; parts == nil || len(parts.AutoScalingGroups) != 1 || awssdk.ToString(parts.AutoScalingGroups[0].Name) != n.group {
		return nil, actuator.Errorf(actuator.Other, "%s: expected a node group with only the Auto Scaling group %s", describeNodegroup, n.group)
	}
	return found, nil
}

// resizeNodeGroup sets the size of a node group. EKS accepts no second update until the first one has ended.
func (c *accountClient) resizeNodeGroup(ctx context.Context, n nodeGroup, size actuator.GroupSize) error {
	found, err := c.describeNodeGroup(ctx, n)
	if err != nil {
		return err
	}
	isUpdating := found.Status == ekstypes.NodegroupStatusUpdating
	if !isUpdating && *found.ScalingConfig.MinSize == size.Min && *found.ScalingConfig.DesiredSize == size.Desired {
		return nil
	}
	operation := fmt.Sprintf("UpdateNodegroupConfig of the %s", n)
	if isUpdating {
		return actuator.Errorf(actuator.WrongState, "%s: EKS is updating the node group; its size can be changed after that", operation)
	}
	return c.callWithTimeout(ctx, operation, func(ctx context.Context) error {
		_, err := c.eks.UpdateNodegroupConfig(ctx, &eks.UpdateNodegroupConfigInput{
			ClusterName: &n.cluster, NodegroupName: &n.name,
			ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: &size.Min, DesiredSize: &size.Desired},
		}, func(o *eks.Options) { o.Retryer = awssdk.NopRetryer{} })
		return err
	})
}
