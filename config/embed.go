// SPDX-License-Identifier: Apache-2.0

// Package config holds the manifests that the program itself reads. They are the same files that administrators apply.
package config

import (
	"embed"
	"fmt"
)

//go:embed features kpack rbac/*.yaml manager record webhook
var files embed.FS

// ReadRole returns, as YAML, the role with the permissions that a group of controllers needs.
func ReadRole(controllers string) ([]byte, error) {
	for _, feature := range Features() {
		if data, err := files.ReadFile("features/" + feature + "/role_" + controllers + ".yaml"); err == nil {
			return data, nil
		}
	}
	if data, err := files.ReadFile(controllers + "/role_" + controllers + ".yaml"); err == nil {
		return data, nil
	}
	return nil, fmt.Errorf("expected a role of %s, found none; run make generate", controllers)
}
