// SPDX-License-Identifier: Apache-2.0

// Package stopcheck finds what a stop, or the start after it, may run into, before anybody stops anything. It is pure: the controller of
// ClusterDeployments and the command kubectl torpor plan say the same of the same. Findings hold up nothing; they are told.
//
// Reading order: finding.go (what is found, and how bad it is) → survey.go (what is read of a cluster) → webhooks.go, workloads.go,
// certificates.go (what is found there) → cluster.go (what of that matters to one stop) → condition.go.
package stopcheck
