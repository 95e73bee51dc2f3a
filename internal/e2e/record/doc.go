// SPDX-License-Identifier: Apache-2.0

// Package record stops and starts things of every kind as several people, with the admission policies of config/record in a real API
// server, and looks who is said to have done it.
package record
