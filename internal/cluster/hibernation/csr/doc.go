// SPDX-License-Identifier: Apache-2.0

// Package csr evaluates the certificate signing requests of nodes while a cluster resumes. Kubelets whose
// certificates expired during the hibernation request new ones, and there may be no other approver.
//
// The package is pure: it reads a request and an inventory of machines and nodes, and returns a Verdict. It never
// denies a request. A request that fails a check is left pending, because another approver may have more information.
//
// request ─▶ standing (judge.go) ─▶ parse (parse_request.go) ─▶ client_checks.go or serving_checks.go ─▶ Verdict
//
// Each list of checks is flat. The first failing check determines the rule and the reason, and a request is approved
// only when no check fails.
package csr
