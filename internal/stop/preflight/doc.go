// SPDX-License-Identifier: Apache-2.0

// Package preflight predicts the problems of a stop, and of the start after it. It has no side effects, so the
// controller of ClusterDeployments and the command kubectl torpor plan derive the same findings from the same facts.
// Findings are advisory: they are reported, and prevent a stop only if it requires the condition HibernationPossible.
//
// Reading order: finding.go (codes and severities) → survey.go (what is read from a cluster) → webhooks.go,
// workloads.go, certificates.go (findings about the objects of the cluster) → machines.go (findings about the machines
// at the cloud) → cluster.go (the findings that concern one stop) → condition.go.
package preflight
