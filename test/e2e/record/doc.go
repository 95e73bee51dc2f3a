// SPDX-License-Identifier: Apache-2.0

// Package record stops and starts objects of every kind as several users, with the admission policies of
// config/record in a real API server, and verifies the recorded requesters.
package record
