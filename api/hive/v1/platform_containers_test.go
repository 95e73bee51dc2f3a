// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strings"
	"testing"
)

func TestSettingsOfContainers(t *testing.T) {
	secret := LocalObjectReference{Name: "engine"}
	for name, row := range map[string]struct {
		platform        ContainersPlatform
		infraID         string
		machines        string
		secret, missing string
	}{
		"containers are selected by the label of the tool kind by default": {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret}, "a", "io.x-k8s.kind.cluster=a", "engine", ""},
		"a label in the spec replaces the default label":                   {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret, Label: "k3d.cluster"}, "a", "k3d.cluster=a", "engine", ""},
		"spec.namePrefix takes precedence over the label in the spec":      {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret, Label: "x", NamePrefix: "a-"}, "a", "a-", "engine", ""},
		"a cluster without an infraID selects no containers":               {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret}, "", "", "engine", ""},
		"an engine at a TCP address requires a Secret":                     {ContainersPlatform{Engine: "tcp://e:1"}, "a", "io.x-k8s.kind.cluster=a", "", "spec.platform.containers.credentialsSecretRef.name"},
		"an engine at a Unix socket ignores the configured Secret":         {ContainersPlatform{Engine: "unix:///s", CredentialsSecretRef: secret}, "a", "io.x-k8s.kind.cluster=a", "", ""},
	} {
		s := row.platform.settings(ClusterMetadata{InfraID: row.infraID})
		if s.Machines != row.machines || s.CredentialsSecretName != row.secret || strings.Join(s.Missing, ",") != row.missing || s.Cloud != row.platform.Engine {
			t.Errorf("%s: found %+v", name, s)
		}
	}
}
