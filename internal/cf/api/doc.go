// SPDX-License-Identifier: Apache-2.0

// Package api serves the CF v3 API for the cf client. Package authorization authenticates each request. The route table
// in package handlers selects a handler, which parses the body with package payloads and calls package repositories.
// Repositories act with the caller's own Kubernetes rights. Package presenter builds the response. Clients receive the
// errors of package apierrors.
package api
