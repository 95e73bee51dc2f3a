// SPDX-License-Identifier: Apache-2.0

// Package api serves the CF v3 API for the cf client. Package authorization authenticates a request. The table of
// routes in package handlers selects its handler, which parses the body with package payloads and calls package
// repositories. Repositories act with the caller's own Kubernetes rights. Package presenter builds the response. Errors
// of all layers are those of package apierrors.
package api
