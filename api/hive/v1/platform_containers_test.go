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
		"nodes of kind are found by its label":                {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret}, "a", "io.x-k8s.kind.cluster=a", "engine", ""},
		"the label in the spec replaces the label of kind":    {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret, Label: "k3d.cluster"}, "a", "k3d.cluster=a", "engine", ""},
		"a prefix of names takes precedence over every label": {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret, Label: "x", NamePrefix: "a-"}, "a", "a-", "engine", ""},
		"a cluster without an infraID has no containers":      {ContainersPlatform{Engine: "tcp://e:1", CredentialsSecretRef: secret}, "", "", "engine", ""},
		"an engine over TLS needs a Secret":                   {ContainersPlatform{Engine: "tcp://e:1"}, "a", "io.x-k8s.kind.cluster=a", "", "spec.platform.containers.credentialsSecretRef.name"},
		"a socket needs no Secret, and ignores a given one":   {ContainersPlatform{Engine: "unix:///s", CredentialsSecretRef: secret}, "a", "io.x-k8s.kind.cluster=a", "", ""},
	} {
		s := row.platform.settings(ClusterMetadata{InfraID: row.infraID})
		if s.Machines != row.machines || s.CredentialsSecretName != row.secret || strings.Join(s.Missing, ",") != row.missing || s.Cloud != row.platform.Engine {
			t.Errorf("%s: found %+v", name, s)
		}
	}
}
