// SPDX-License-Identifier: Apache-2.0

// Package statuses holds objects in the states that users and programs wait for, as the controllers write
// them.
package statuses
