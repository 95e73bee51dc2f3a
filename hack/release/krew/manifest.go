// SPDX-License-Identifier: Apache-2.0

// Package krew builds archives and manifests of kubectl plugins for krew.
package krew

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

const (
	apiVersion = "krew.googlecontainertools.github.com/v1alpha2"
	kind       = "Plugin"
	// longestShortDescription is the length to which krew's table of plugins truncates a short description.
	longestShortDescription = 70
)

// PluginManifest lists the archives of a plugin per platform.
type PluginManifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        PluginMetadata `json:"metadata"`
	Spec            PluginSpec     `json:"spec"`
}

// PluginMetadata holds the name of the plugin, which is also the name of the file.
type PluginMetadata struct {
	Name string `json:"name"`
}

// PluginSpec describes one version of a plugin.
type PluginSpec struct {
	Version          string            `json:"version"`
	Homepage         string            `json:"homepage"`
	ShortDescription string            `json:"shortDescription"`
	Description      string            `json:"description"`
	Caveats          string            `json:"caveats,omitempty"`
	Platforms        []PlatformArchive `json:"platforms"`
}

// PlatformArchive is an archive for machines with the labels os and arch.
type PlatformArchive struct {
	Selector metav1.LabelSelector `json:"selector"`
	URI      string               `json:"uri"`
	SHA256   string               `json:"sha256"`
	Bin      string               `json:"bin"`
	Files    []FileMove           `json:"files,omitempty"`
}

// FileMove extracts files from the archive.
type FileMove struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Parse parses a manifest, and returns an error if krew would reject it. fileName is the name of the manifest's
// file, without the folder.
func Parse(fileName string, text []byte) (PluginManifest, error) {
	var m PluginManifest
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return m, fmt.Errorf("%s: %w", fileName, err)
	}
	if err := m.validate(strings.TrimSuffix(fileName, ".yaml")); err != nil {
		return m, fmt.Errorf("%s: %w", fileName, err)
	}
	return m, nil
}

func (m PluginManifest) validate(name string) error {
	isSafe := regexp.MustCompile(`^[\w-]+$`).MatchString
	switch {
	case m.APIVersion != apiVersion || m.Kind != kind:
		return fmt.Errorf("expected apiVersion %s and kind %s, found %q and %q", apiVersion, kind, m.APIVersion, m.Kind)
	case m.Metadata.Name != name || !isSafe(name):
		return fmt.Errorf("expected the name of the file, of letters, digits, dashes and underscores, found %q", m.Metadata.Name)
	case m.Spec.ShortDescription == "" || len(m.Spec.ShortDescription) > longestShortDescription || strings.ContainsAny(m.Spec.ShortDescription, "\r\n"):
		return fmt.Errorf("expected a short description in one line of at most %d characters, found %q", longestShortDescription, m.Spec.ShortDescription)
	case !strings.HasPrefix(m.Spec.Version, "v"):
		return fmt.Errorf("expected a version such as v1.0.0, found %q", m.Spec.Version)
	case len(m.Spec.Platforms) == 0:
		return fmt.Errorf("expected a platform, found none")
	}
	if _, err := version.ParseSemantic(m.Spec.Version); err != nil {
		return fmt.Errorf("expected a version such as v1.0.0, found %q: %w", m.Spec.Version, err)
	}
	var seen []string
	for i, p := range m.Spec.Platforms {
		if err := p.validate(); err != nil {
			return fmt.Errorf("platform %d: %w", i, err)
		}
		// With both labels required, two platforms match the same machines only if the labels are equal.
		machine := p.Selector.MatchLabels["os"] + "/" + p.Selector.MatchLabels["arch"]
		if slices.Contains(seen, machine) {
			return fmt.Errorf("platform %d: expected one platform for %s, found two", i, machine)
		}
		seen = append(seen, machine)
	}
	return nil
}

func (p PlatformArchive) validate() error {
	labels := p.Selector.MatchLabels
	switch {
	case len(labels) != 2 || labels["os"] == "" || labels["arch"] == "" || len(p.Selector.MatchExpressions) > 0:
		return fmt.Errorf("expected the labels os and arch, found %v", p.Selector)
	case !strings.HasPrefix(p.URI, "https://"):
		return fmt.Errorf("expected an https address of the archive, found %q", p.URI)
	case !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(p.SHA256):
		return fmt.Errorf("expected the SHA-256 of the archive in hex, found %q", p.SHA256)
	case p.Bin == "" || strings.Contains(p.Bin, ".."):
		return fmt.Errorf("expected the program in the archive, found %q", p.Bin)
	}
	for _, f := range p.Files {
		if f.From == "" || f.To == "" || strings.Contains(f.From+f.To, "..") {
			return fmt.Errorf("expected a file with a path in the archive and a path in the folder, neither with .., found %+v", f)
		}
	}
	return nil
}
