// SPDX-License-Identifier: Apache-2.0

// Package artifacts builds all artifacts of one version, and checks that none is missing.
package artifacts

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/config"
	"github.com/torpor-dev/torpor/hack/release/archive"
	"github.com/torpor-dev/torpor/hack/release/bundle"
	"github.com/torpor-dev/torpor/hack/release/chart"
	releaseimage "github.com/torpor-dev/torpor/hack/release/image"
	"github.com/torpor-dev/torpor/hack/release/krew"
	"github.com/torpor-dev/torpor/hack/release/sbom"
)

// Options are the inputs of a build.
type Options struct {
	// Root is the file system of the repository.
	Root fs.FS
	// Folder is where the folder of the version is created.
	Folder string
	// Version is the version, such as v1.2.3. In a dry run, empty means the newest version in the changelog.
	Version string
	// IsDryRun permits programs with a version other than Version, and a changelog without a date for Version. It also
	// signs the checksums with a temporary key.
	IsDryRun bool
	// Image is the name of the image in its registry, without a tag.
	Image string
	// Machines are the platforms for which programs are built. An empty list means all. The image needs a Linux
	// platform.
	Machines []krew.Machine
	// Downloads is the address of the releases, to which the version is added.
	Downloads string
	// Compile compiles a program of cmd for a platform, and returns its path.
	Compile func(ctx context.Context, program string, m krew.Machine) (string, error)
}

// Release is a version that was built.
type Release struct {
	// Folder contains the artifacts.
	Folder, Version string
	// ImageName is the name of the image with tag and digest.
	ImageName string
	Image     releaseimage.Release
	Chart     chart.Package
	Artifacts []Artifact
}

// builder holds the results of build steps that later steps need.
type builder struct {
	Options
	Release
	license []byte
	// linux contains the paths of the programs for the image, one per platform.
	linux []string
	// committed is the time of the commit, as recorded in the programs.
	committed string
}

// Build builds all artifacts of a version into its folder, whose previous contents it replaces.
func (o Options) Build(ctx context.Context) (Release, error) {
	if len(o.Machines) == 0 {
		o.Machines = krew.ListMachines()
	}
	b := builder{Options: o}
	for _, step := range []func(context.Context) error{
		b.begin, b.buildManager, b.buildPlugins, b.buildImage, b.renderManifests, b.packageChart, b.packageBundle, b.sum,
	} {
		if err := step(ctx); err != nil {
			return b.Release, err
		}
	}
	var err error
	b.Artifacts, err = Check(b.Release.Folder, b.listExpected())
	return b.Release, err
}

func (b *builder) listExpected() []string {
	return ListExpected(b.Release.Version, b.Machines, b.IsDryRun)
}

// begin checks the inputs first, because building the programs takes minutes.
func (b *builder) begin(context.Context) error {
	changelog, err := fs.ReadFile(b.Root, "CHANGELOG.md")
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	b.Release.Version = b.Options.Version
	if b.Release.Version == "" && b.IsDryRun {
		b.Release.Version = findNewestVersion(changelog)
	}
	notes, err := extractNotes(changelog, b.Release.Version, !b.IsDryRun)
	if err != nil {
		return err
	}
	if b.license, err = fs.ReadFile(b.Root, "LICENSE"); err != nil {
		return fmt.Errorf("read the license: %w", err)
	}
	b.Release.Folder = filepath.Join(b.Options.Folder, b.Release.Version)
	if err := errors.Join(os.RemoveAll(b.Release.Folder), os.MkdirAll(b.Release.Folder, 0o750)); err != nil {
		return fmt.Errorf("create the folder of the version: %w", err)
	}
	return b.write("release-notes.md", notes)
}

func (b *builder) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(b.Release.Folder, name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// compile compiles a program for a platform, and writes its bill of materials.
func (b *builder) compile(ctx context.Context, program string, m krew.Machine) (string, error) {
	path, err := b.Compile(ctx, program, m)
	if err != nil {
		return "", err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("expected a program of Go at %s: %w", path, err)
	}
	if found := info.Main.Version; !b.IsDryRun && found != b.Release.Version {
		return "", fmt.Errorf("expected %s to have the version %s, found %q; build a clean clone at the tag",
			program, b.Release.Version, found)
	}
	if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.time" }); i >= 0 {
		b.committed = info.Settings[i].Value
	}
	bill, err := sbom.Describe(info)
	if err != nil {
		return "", err
	}
	return path, b.write(fmt.Sprintf("%s_%s_%s.cdx.json", program, m.OS, m.Architecture), bill)
}

// buildManager builds torpor for the machines of administrators and for the image.
func (b *builder) buildManager(ctx context.Context) error {
	for _, m := range b.Machines {
		if m.OS == "windows" {
			continue
		}
		path, err := b.compile(ctx, "torpor", m)
		if err != nil {
			return err
		}
		if m.OS == "linux" {
			b.linux = append(b.linux, path)
		}
		code, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the program: %w", err)
		}
		packed, err := archive.Pack(
			archive.File{Name: "LICENSE", Content: b.license}, archive.File{Name: "torpor", Content: code, IsProgram: true},
		)
		if err != nil {
			return err
		}
		if err := b.write(fmt.Sprintf("torpor_%s_%s.tar.gz", m.OS, m.Architecture), packed); err != nil {
			return err
		}
	}
	return nil
}

// buildPlugins builds the plugins of kubectl and their manifests for krew.
func (b *builder) buildPlugins(ctx context.Context) error {
	for _, plugin := range krew.ListPlugins() {
		var programs []krew.BuiltPlugin
		for _, m := range b.Machines {
			path, err := b.compile(ctx, "kubectl-"+plugin.Name, m)
			if err != nil {
				return err
			}
			programs = append(programs, krew.BuiltPlugin{Machine: m, Path: path})
		}
		address := b.Downloads + "/" + b.Release.Version
		if _, err := plugin.Package(b.Release.Folder, address, b.Release.Version, b.license, programs); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) buildImage(context.Context) error {
	var err error
	if b.Release.Image, err = releaseimage.Build(b.linux...); err != nil {
		return err
	}
	digest, err := b.Release.Image.Index.Digest()
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	b.ImageName = fmt.Sprintf("%s:%s@%s", b.Options.Image, b.Release.Version, digest)
	return b.Release.Image.WriteLayout(filepath.Join(b.Release.Folder, "image"), b.Options.Image+":"+b.Release.Version)
}

// renderManifests writes the output of torpor install --image.
func (b *builder) renderManifests(context.Context) error {
	manifests, err := config.RenderManifests(config.ManifestOptions{Image: b.ImageName, Record: config.RecordWebhook})
	if err != nil {
		return err
	}
	return b.write("install.yaml", manifests)
}

func (b *builder) packageChart(context.Context) error {
	var err error
	b.Chart, err = chart.Options{Root: b.Root, Version: b.Release.Version, Image: b.ImageName}.Build()
	if err != nil {
		return err
	}
	if err := b.write(b.Chart.FileName(), b.Chart.Archive); err != nil {
		return err
	}
	return b.Chart.WriteLayout(filepath.Join(b.Release.Folder, "chart"))
}

func (b *builder) packageBundle(context.Context) error {
	folder := filepath.Join(b.Release.Folder, "bundle")
	o := bundle.Options{Root: b.Root, Image: b.ImageName, Version: b.Release.Version, Created: b.committed}
	if err := o.Write(folder); err != nil {
		return err
	}
	var files []archive.File
	root := os.DirFS(b.Release.Folder)
	err := fs.WalkDir(root, "bundle", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		files = append(files, archive.File{Name: path, Content: content})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the bundle: %w", err)
	}
	packed, err := archive.Pack(files...)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the folder of the bundle: %w", err)
	}
	return b.write("torpor-bundle.tar.gz", packed)
}

// sum writes the checksums, and signs them in a dry run.
func (b *builder) sum(context.Context) error {
	var lines strings.Builder
	for _, name := range b.listExpected() {
		if !isSummed(name) {
			continue
		}
		sum, _, err := sumFile(filepath.Join(b.Release.Folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // Check reports all missing files.
		}
		if err != nil {
			return fmt.Errorf("sum %s: %w", name, err)
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, name)
	}
	if err := b.write(checksums, []byte(lines.String())); err != nil {
		return err
	}
	if !b.IsDryRun {
		return nil
	}
	return signWithTemporaryKey(b.Release.Folder)
}
