// SPDX-License-Identifier: Apache-2.0

// Package chart packages Torpor's Helm chart as an archive and as an OCI artifact. The result is reproducible: the
// same files result in the same bytes.
package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/hack/release/archive"
)

const folder = "charts/torpor"

// Options are the inputs of a package.
type Options struct {
	// Root is the file system of the repository. Symbolic links are followed.
	Root fs.FS
	// Version is the version, such as v1.2.3. The chart's version gets no leading v, but its appVersion does. Empty
	// keeps the versions of the repository.
	Version string
	// Image is the image that the chart uses by default, with tag and digest. Empty keeps the image of values.yaml.
	Image string
}

// Package is a packaged chart.
type Package struct {
	// Name and Version are the name and the version of the chart.
	Name, Version string
	// Archive is the file that helm installs.
	Archive []byte
	// Metadata is the Chart.yaml as JSON.
	Metadata []byte
}

// FileName returns the name that helm package gives the archive.
func (p Package) FileName() string { return p.Name + "-" + p.Version + ".tgz" }

// Build packages the chart.
func (o Options) Build() (Package, error) {
	p := Package{Name: path.Base(folder)}
	files, err := o.readFolder(folder)
	if err != nil {
		return p, err
	}
	for i := range files {
		switch files[i].Name {
		case "torpor/Chart.yaml":
			files[i].Content, err = o.completeMetadata(&p, files[i].Content)
		case "torpor/values.yaml":
			files[i].Content, err = o.completeValues(files[i].Content)
		}
		if err != nil {
			return p, err
		}
	}
	if p.Metadata == nil {
		return p, fmt.Errorf("expected a chart in %s, found no Chart.yaml", folder)
	}
	license, err := fs.ReadFile(o.Root, "LICENSE")
	if err != nil {
		return p, fmt.Errorf("read the license: %w", err)
	}
	p.Archive, err = archive.Pack(append(files, archive.File{Name: "torpor/LICENSE", Content: license})...)
	return p, err
}

// readFolder returns the files of a folder and of the folders that it links to.
func (o Options) readFolder(name string) ([]archive.File, error) {
	entries, err := fs.ReadDir(o.Root, name)
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	var files []archive.File
	for _, entry := range entries {
		at := path.Join(name, entry.Name())
		info, err := fs.Stat(o.Root, at)
		if err != nil {
			return nil, fmt.Errorf("read the chart: %w", err)
		}
		if info.IsDir() {
			more, err := o.readFolder(at)
			if err != nil {
				return nil, err
			}
			files = append(files, more...)
			continue
		}
		content, err := fs.ReadFile(o.Root, at)
		if err != nil {
			return nil, fmt.Errorf("read the chart: %w", err)
		}
		files = append(files, archive.File{Name: strings.TrimPrefix(at, path.Dir(folder)+"/"), Content: content})
	}
	return files, nil
}

// completeMetadata sets the versions, and the annotations that Artifact Hub reads, and returns the new Chart.yaml.
func (o Options) completeMetadata(p *Package, text []byte) ([]byte, error) {
	metadata := map[string]any{}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, fmt.Errorf("read Chart.yaml: %w", err)
	}
	if o.Version != "" {
		metadata["version"], metadata["appVersion"] = strings.TrimPrefix(o.Version, "v"), o.Version
	}
	p.Version, _ = metadata["version"].(string)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations["artifacthub.io/prerelease"] = strconv.FormatBool(strings.Contains(p.Version, "-"))
	if o.Image != "" {
		images, err := yaml.Marshal([]map[string]string{{"name": "torpor", "image": o.Image}})
		if err != nil {
			return nil, fmt.Errorf("write Chart.yaml: %w", err)
		}
		annotations["artifacthub.io/images"] = string(images)
	}
	metadata["annotations"] = annotations
	asYAML, err := yaml.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("write Chart.yaml: %w", err)
	}
	p.Metadata, err = json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("write Chart.yaml: %w", err)
	}
	return asYAML, nil
}

// completeValues sets the default image in values.yaml, and keeps the comments.
func (o Options) completeValues(text []byte) ([]byte, error) {
	if o.Image == "" {
		return text, nil
	}
	named, err := reference.ParseNormalizedNamed(o.Image)
	if err != nil {
		return nil, fmt.Errorf("expected an image such as registry.example/torpor:v1@sha256:…, found %q: %w", o.Image, err)
	}
	repository := reference.TrimNamed(named).Name()
	tag, hasTag := strings.CutPrefix(o.Image, repository+":")
	if _, hasDigest := named.(reference.Digested); !hasTag || !hasDigest {
		return nil, fmt.Errorf("expected an image with registry, tag and digest, found %q", o.Image)
	}
	before, after, _ := bytes.Cut(text, []byte("\nimage:\n"))
	section, rest := cutSection(after)
	for empty, set := range map[string]string{
		"\n  repository: \"\"\n": fmt.Sprintf("\n  repository: %q\n", repository),
		"\n  tag: \"\"\n":        fmt.Sprintf("\n  tag: %q\n", tag),
	} {
		if n := bytes.Count(section, []byte(empty)); n != 1 {
			return nil, fmt.Errorf("expected %s once under image: in values.yaml, found %d", strings.TrimSpace(empty), n)
		}
		section = bytes.Replace(section, []byte(empty), []byte(set), 1)
	}
	return slices.Concat(before, []byte("\nimage:\n"), section, rest), nil
}

// cutSection returns the indented lines at the beginning of a text, and the rest.
func cutSection(text []byte) (section, rest []byte) {
	for len(section) < len(text) {
		line, _, _ := bytes.Cut(text[len(section):], []byte("\n"))
		if !bytes.HasPrefix(line, []byte("  ")) {
			break
		}
		section = text[:min(len(section)+len(line)+1, len(text))]
	}
	return section, text[len(section):]
}
