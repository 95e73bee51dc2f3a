// SPDX-License-Identifier: Apache-2.0

// Package csr judges the certificate signing requests of nodes while a cluster
// wakes: kubelets whose certificates ran out during the sleep ask for new ones,
// and nobody else may be there to approve them.
//
// The package is pure: it reads a request and an inventory of machines and nodes,
// and answers with a Verdict. It never denies: a request that fails is left
// pending, because it might be somebody else's to approve.
//
//	request ─▶ standing (judge.go) ─▶ parse (request.go) ─▶ client.go or serving.go ─▶ Verdict
//
// Each list of checks is flat; the first failing check gives the rule and the reason,
// and a request is approved only when no check fails.
package csr
