// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// StopMachine implements rest.OneByOneAccount.
func (c *accountClient) StopMachine(ctx context.Context, id string) error {
	// The SDK must not repeat a stop. Before repeating a stop, a caller must check that it is still wanted.
	once := policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	return c.orderMachine(once, deallocate, id, func(ctx context.Context, m machineName) error {
		_, err := c.machines.BeginDeallocate(ctx, m.group, m.name, nil)
		return err
	})
}

// StartMachine implements rest.OneByOneAccount.
func (c *accountClient) StartMachine(ctx context.Context, id string) error {
	return c.orderMachine(ctx, start, id, func(ctx context.Context, m machineName) error {
		_, err := c.machines.BeginStart(ctx, m.group, m.name, nil)
		return err
	})
}

func (c *accountClient) orderMachine(ctx context.Context, operation, id string, order func(context.Context, machineName) error) error {
	m, ok := parseMachineName(id)
	if !ok {
		return &onebyone.RefusedError{Class: actuator.NotFound, Code: "NotFound", Message: "expected an id such as GROUP/NAME"}
	}
	return c.callWithTimeout(ctx, operation, func(ctx context.Context) error { return order(ctx, m) })
}
