// SPDX-License-Identifier: Apache-2.0

package actuator

import "context"

// Terminator is what a BatchActuator implements beside it whose cloud has spot machines that can only be terminated. It is optional:
// without it such a machine keeps its cluster running (docs/adr/0024-spot-machines-are-terminated-last.md).
type Terminator interface {
	BatchActuator
	// RequireTerminateRights returns an error if the cloud can tell beforehand that the rights to terminate one of the machines are
	// missing.
	RequireTerminateRights(ctx context.Context, t Target, ids []string) error
	// TerminateAll ends machines of several clusters for good, and returns an error for each cluster. Machines that are gone already
	// are no error, and one that is refused does not hold back the others.
	TerminateAll(ctx context.Context, t Target, clusters [][]string) []error
}
