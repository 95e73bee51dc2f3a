// SPDX-License-Identifier: Apache-2.0

// Package soak runs all features together, while users change their requests and faults occur. An oracle compares what
// the cloud, the servers of MySQL, the hub and the users observe. It shares no code with the product except the types of
// the API.
package soak
