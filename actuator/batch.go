// SPDX-License-Identifier: Apache-2.0

package actuator

import "context"

// BatchActuator is what an Actuator implements beside it whose cloud answers for many clusters with one call. It is optional:
// without it each cluster is looked at by calls of its own (docs/adr/0016-accounts-look-and-order.md).
type BatchActuator interface {
	// AccountOf names what targets share that one call may serve: the same credentials, region and endpoint. The name holds no
	// secret, and the cloud is not called.
	AccountOf(ctx context.Context, t Target) (string, error)
	// ObserveAll returns the machines of clusters of an account by infraID, as Observe does for one: all of them, or an error.
	// The target's own infraID does not matter, here and below.
	ObserveAll(ctx context.Context, t Target, infraIDs []string) (map[string][]Machine, error)
	// RequireStopRights returns an error if the cloud can tell beforehand that the rights to stop or to start one of the machines
	// are missing.
	RequireStopRights(ctx context.Context, t Target, ids []string) error
	// StopAll stops machines of several clusters, and returns for each cluster what Stop would, but for missing rights.
	StopAll(ctx context.Context, t Target, clusters [][]string) []error
	// StartAll starts machines of several clusters, and returns for each cluster what Start would.
	StartAll(ctx context.Context, t Target, clusters [][]string) []error
}
