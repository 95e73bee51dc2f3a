// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"slices"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/orders"
)

// orderAll stops or starts machines of clusters by one call each, and returns an error for each cluster.
func (a *Actuator) orderAll(ctx context.Context, t actuator.Target, operation string, clusters [][]string, do func(context.Context, *accountClient, machineName) error) []error {
	c, err := a.clientFor(t)
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return orders.Run(operation, clusters, func(id string) error { return c.orderMachine(ctx, operation, id, do) })
}

func (c *accountClient) orderMachine(ctx context.Context, operation, id string, do func(context.Context, *accountClient, machineName) error) error {
	m, ok := parseMachineName(id)
	if !ok {
		return &orders.RefusedError{Class: actuator.NotFound, Code: "NotFound", Message: "expected an id such as GROUP/NAME"}
	}
	return c.callWithTimeout(ctx, operation, func(ctx context.Context) error { return do(ctx, c, m) })
}
