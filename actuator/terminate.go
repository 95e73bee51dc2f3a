// SPDX-License-Identifier: Apache-2.0

package actuator

import "context"

// Terminator is an optional interface of a BatchActuator. Its cloud has spot machines that can be terminated, but not
// stopped. If an actuator does not implement it, a cluster with such a machine is not stopped
// (docs/adr/0024-spot-machines-are-terminated-last.md).
type Terminator interface {
	BatchActuator
	// RequireTerminateRights returns an error if the cloud reports in advance that permissions to terminate one of
	// the machines are missing.
	RequireTerminateRights(ctx context.Context, t Target, ids []string) error
	// TerminateAll permanently deletes machines of several clusters, and returns an error for each cluster. Machines
	// that are already gone cause no error. A machine whose termination is rejected does not prevent the termination
	// of the others.
	TerminateAll(ctx context.Context, t Target, clusters [][]string) []error
}
