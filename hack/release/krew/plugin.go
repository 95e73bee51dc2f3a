// SPDX-License-Identifier: Apache-2.0

package krew

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/hack/release/archive"
)

// Plugin describes a kubectl plugin.
type Plugin struct {
	Name, ShortDescription, Description, Caveats string
}

// ListPlugins returns Torpor's plugins.
func ListPlugins() []Plugin {
	return []Plugin{
		{
			Name: "torpor", ShortDescription: "Show who stopped an object and why; stop and start objects",
			Description: "Stops and starts clusters, MySQL clusters and apps that Torpor handles, with a\nreason and an end, and shows the requester, the reason and the end of each stop.\n",
			Caveats:     "For completion, link the plugin to kubectl_complete-torpor on your PATH.\n",
		},
		{
			Name: "moco", ShortDescription: "Stop, start and inspect MySQL clusters of Torpor or MOCO",
			Description: "Stops and starts clustering and reconciliation of MySQLClusters, switches over,\nand opens a client. It works with Torpor; krew's index has another plugin of\nthis name, which is MOCO's own.\n",
			Caveats:     "For completion, link the plugin to kubectl_complete-moco on your PATH.\n",
		},
	}
}

// Machine is a platform: the GOOS and GOARCH of a build.
type Machine struct{ OS, Architecture string }

// ListMachines returns the platforms for which plugins are built.
func ListMachines() []Machine {
	return []Machine{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}
}

// ParseMachine parses a platform such as linux/amd64.
func ParseMachine(platform string) (Machine, error) {
	system, architecture, _ := strings.Cut(platform, "/")
	m := Machine{system, architecture}
	if !slices.Contains(ListMachines(), m) {
		return m, fmt.Errorf("expected one of the platforms %v, found %q", ListMachines(), platform)
	}
	return m, nil
}

// String returns the platform.
func (m Machine) String() string { return m.OS + "/" + m.Architecture }

func (m Machine) programName(plugin string) string {
	if m.OS == "windows" {
		return "kubectl-" + plugin + ".exe"
	}
	return "kubectl-" + plugin
}

// ArchiveName returns the file name of a plugin's archive.
func (m Machine) ArchiveName(plugin string) string {
	return fmt.Sprintf("kubectl-%s_%s_%s.tar.gz", plugin, m.OS, m.Architecture)
}

// BuiltPlugin is the path of a plugin's program that was built for one platform.
type BuiltPlugin struct {
	Machine Machine
	Path    string
}

// Package writes an archive of each program into a folder, and a manifest that links to the archives below an
// address.
func (p Plugin) Package(folder, address, version string, license []byte, programs []BuiltPlugin) (PluginManifest, error) {
	m := PluginManifest{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, Metadata: PluginMetadata{p.Name},
		Spec: PluginSpec{
			Version: version, Homepage: "https://github.com/torpor-dev/torpor", ShortDescription: p.ShortDescription, Description: p.Description, Caveats: p.Caveats,
		},
	}
	for _, b := range programs {
		code, err := os.ReadFile(b.Path)
		if err != nil {
			return m, fmt.Errorf("read the plugin: %w", err)
		}
		packed, err := archive.Pack(
			archive.File{Name: "LICENSE", Content: license},
			archive.File{Name: b.Machine.programName(p.Name), Content: code, IsProgram: true},
		)
		if err != nil {
			return m, err
		}
		name := b.Machine.ArchiveName(p.Name)
		if err := os.WriteFile(filepath.Join(folder, name), packed, 0o600); err != nil {
			return m, fmt.Errorf("write the archive: %w", err)
		}
		sum := sha256.Sum256(packed)
		m.Spec.Platforms = append(m.Spec.Platforms, PlatformArchive{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"os": b.Machine.OS, "arch": b.Machine.Architecture}},
			URI:      address + "/" + name, SHA256: hex.EncodeToString(sum[:]), Bin: b.Machine.programName(p.Name),
		})
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return m, fmt.Errorf("encode the manifest: %w", err)
	}
	if _, err := Parse(p.Name+".yaml", text); err != nil {
		return m, err
	}
	if err := os.WriteFile(filepath.Join(folder, p.Name+".yaml"), text, 0o600); err != nil {
		return m, fmt.Errorf("write the manifest: %w", err)
	}
	return m, nil
}
