// SPDX-License-Identifier: Apache-2.0

// Package stoppable contains the kinds that a Slumber can stop, one file each. Each kind defines when an object is
// asleep, awake, or stopped by another requester. The package has no side effects.
package stoppable
