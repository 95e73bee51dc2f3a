// SPDX-License-Identifier: Apache-2.0

// Package argocd tests the health checks and actions of config/argocd as Argo CD runs them.
package argocd
