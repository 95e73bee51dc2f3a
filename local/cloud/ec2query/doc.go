// SPDX-License-Identifier: Apache-2.0

// Package ec2query speaks the EC2 Query API: it reads form-encoded requests and writes answers and errors in EC2's XML.
package ec2query
