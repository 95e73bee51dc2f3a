// SPDX-License-Identifier: Apache-2.0

// Package flux tests the expressions of config/flux, by which Flux's kustomize-controller reads Torpor's
// statuses.
package flux
