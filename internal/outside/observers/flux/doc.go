// SPDX-License-Identifier: Apache-2.0

// Package flux tests what Flux's kustomize-controller reads in Torpor's statuses by the expressions of config/flux.
package flux
