// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/torpor-dev/torpor/actuator"
)

// Stop implements actuator.Actuator. Machines that EC2 can only terminate, such as those of one-time spot requests, are
// left as they are and named in the error.
func (a *Actuator) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	return c.changePower(ctx, stopInstances, ids, func(ctx context.Context, ids []string) error {
		_, err := c.api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})
		return err
	})
}
