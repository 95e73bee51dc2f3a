// SPDX-License-Identifier: Apache-2.0

// Package statuses has objects in the states that people and programs wait for, as the controllers write them.
package statuses
