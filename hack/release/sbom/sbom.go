// SPDX-License-Identifier: Apache-2.0

// Package sbom describes the modules of a Go program in the format of CycloneDX. It uses the build information in
// the program, so it works for any Go program.
package sbom

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
)

// MediaType is the media type of a bill of materials.
const MediaType = "application/vnd.cyclonedx+json"

// BillOfMaterials is a bill of materials with a subset of CycloneDX's fields.
type BillOfMaterials struct {
	BOMFormat   string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	// SerialNumber is derived from the contents, so that the same program always has the same document.
	SerialNumber string                `json:"serialNumber"`
	Version      int                   `json:"version"`
	Metadata     ProgramMetadata       `json:"metadata"`
	Components   []BillComponent       `json:"components"`
	Dependencies []ComponentDependency `json:"dependencies"`
}

// ProgramMetadata describes the program.
type ProgramMetadata struct {
	Component  BillComponent   `json:"component"`
	Properties []BuildProperty `json:"properties,omitempty"`
}

// BillComponent is the program or a module in it.
type BillComponent struct {
	Type    string       `json:"type"`
	Ref     string       `json:"bom-ref"`
	Name    string       `json:"name"`
	Version string       `json:"version"`
	PURL    string       `json:"purl,omitempty"`
	Hashes  []ModuleHash `json:"hashes,omitempty"`
}

// ModuleHash is the checksum of a module in go.sum.
type ModuleHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// BuildProperty is a setting of the build.
type BuildProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ComponentDependency lists the dependencies of a component. The build information does not record dependencies between
// modules, so all modules are listed as dependencies of the program.
type ComponentDependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// Describe returns the bill of materials of a program as JSON.
func Describe(info *debug.BuildInfo) ([]byte, error) {
	program := describeModule("application", &info.Main)
	program.Name = info.Path
	d := BillOfMaterials{BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: ProgramMetadata{Component: program}}
	for _, s := range info.Settings {
		d.Metadata.Properties = append(d.Metadata.Properties, BuildProperty{"go:build:" + s.Key, s.Value})
	}
	standard := BillComponent{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	standard.Ref = standard.PURL
	d.Components = []BillComponent{standard}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		d.Components = append(d.Components, describeModule("library", module))
	}
	all := ComponentDependency{Ref: program.Ref}
	for _, c := range d.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
		d.Dependencies = append(d.Dependencies, ComponentDependency{Ref: c.Ref})
	}
	d.Dependencies = slices.Insert(d.Dependencies, 0, all)
	contents, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the bill of materials: %w", err)
	}
	d.SerialNumber = serialNumberOf(contents)
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode the bill of materials: %w", err)
	}
	return append(text, '\n'), nil
}

func describeModule(kind string, m *debug.Module) BillComponent {
	c := BillComponent{Type: kind, Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path}
	if m.Version != "" {
		c.PURL += "@" + url.PathEscape(m.Version)
	}
	c.Ref = c.PURL
	// A sum in go.sum is h1: followed by the base64 of a SHA-256.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = []ModuleHash{{"SHA-256", hex.EncodeToString(sum)}}
	}
	return c
}

// serialNumberOf derives a UUID of version 8, the version for custom contents (RFC 9562).
func serialNumberOf(contents []byte) string {
	id := sha256.Sum256(contents)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}
