// SPDX-License-Identifier: Apache-2.0

// Package kstatus tests what tools that wait for objects, such as Flux and helm, read in Torpor's statuses.
package kstatus
