// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/torpor-dev/torpor/actuator"
)

// Start implements actuator.Actuator. The error names the machines that could not start.
func (a *Actuator) Start(ctx context.Context, t actuator.Target, ids []string) error {
	c, err := a.clientFor(ctx, t)
	if err != nil {
		return err
	}
	return c.changePower(ctx, startInstances, ids, func(ctx context.Context, ids []string) error {
		_, err := c.api.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})
		return err
	})
}
