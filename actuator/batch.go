// SPDX-License-Identifier: Apache-2.0

package actuator

import "context"

// BatchActuator is an optional interface of an Actuator whose cloud can list, stop and start the machines of many
// clusters in one call. Without it, each cluster is observed by separate calls
// (docs/adr/0016-accounts-look-and-order.md).
type BatchActuator interface {
	// AccountOf returns a name for the account of a target. The name is the same for all targets that one call can
	// serve, because they have the same credentials, region and endpoint. It contains no secret. AccountOf does not
	// call the cloud.
	AccountOf(ctx context.Context, t Target) (string, error)
	// ObserveAll returns the machines of several clusters of an account, keyed by infraID. It returns either the
	// machines of all clusters or an error. ObserveAll and the methods below ignore t.InfraID.
	ObserveAll(ctx context.Context, t Target, infraIDs []string) (map[string][]Machine, error)
	// RequireStopRights returns an error if the cloud reports in advance that permissions to stop or start one of
	// the machines are missing.
	RequireStopRights(ctx context.Context, t Target, ids []string) error
	// StopAll stops machines of several clusters. For each cluster it returns the error that Stop would return, but
	// it does not check permissions in advance.
	StopAll(ctx context.Context, t Target, clusters [][]string) []error
	// StartAll starts machines of several clusters. For each cluster it returns the error that Start would return.
	StartAll(ctx context.Context, t Target, clusters [][]string) []error
}
