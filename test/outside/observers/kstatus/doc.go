// SPDX-License-Identifier: Apache-2.0

// Package kstatus tests how tools that wait for objects, such as Flux and helm, interpret Torpor's statuses.
package kstatus
