// SPDX-License-Identifier: Apache-2.0

// Package crd holds Torpor's CustomResourceDefinitions, so that the program can install them.
package crd

import "embed"

// Files are the manifests, one CustomResourceDefinition in each.
//
//go:embed *_*.yaml
var Files embed.FS
