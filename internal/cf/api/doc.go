// SPDX-License-Identifier: Apache-2.0

// Package api is the CF v3 API, for the cf client: a request goes from the table in package route over payload and
// store to view, with the caller's own Kubernetes rights, which package access looks after.
package api
