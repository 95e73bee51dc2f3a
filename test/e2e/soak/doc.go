// SPDX-License-Identifier: Apache-2.0

// Package soak runs all features except MySQL clusters together, while users change their requests and faults occur. An
// oracle compares what the cloud, the hub and the users observe. It shares no code with the product except the types of
// the API.
package soak
