// SPDX-License-Identifier: Apache-2.0

// Package stoppable has the kinds that a Slumber can stop, one file each: what of an object says that it is asleep, awake, or stopped by
// somebody else. It is pure.
package stoppable
