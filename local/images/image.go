// SPDX-License-Identifier: Apache-2.0

// Package images makes container images from files, without any registry: a tree of files becomes the one layer of an
// image in a tar file, which containerd imports.
package images

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// FileTree is what an image holds, by the path in it, without a slash in front.
type FileTree map[string]treeEntry

// treeEntry is one file of a tree: a copy of Source, a symbolic link, a folder, or a small text.
type treeEntry struct {
	source, link, text string
	dir                bool
	mode               int64
	owner              int
}

// CopyFile takes a file of this machine, with its permissions; a link is followed.
func (t FileTree) CopyFile(name, source string) { t[name] = treeEntry{source: source} }

// AddLink makes a symbolic link.
func (t FileTree) AddLink(name, target string) { t[name] = treeEntry{link: target, mode: 0o777} }

// AddDir makes a folder that belongs to the owner.
func (t FileTree) AddDir(name string, mode int64, owner int) {
	t[name] = treeEntry{dir: true, mode: mode, owner: owner}
}

// AddText makes a small file that everybody may read.
func (t FileTree) AddText(name, text string) { t[name] = treeEntry{text: text, mode: 0o644} }

// CopyFolder takes all files below a folder.
func (t FileTree) CopyFolder(name, source string) error {
	err := filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(source, file)
		t.CopyFile(path.Join(name, filepath.ToSlash(below)), file)
		return err
	})
	if err != nil {
		return fmt.Errorf("list files for an image: %w", err)
	}
	return nil
}

// openTar is the tree as a tar file, which is made while it is read.
func (t FileTree) openTar() (io.ReadCloser, error) {
	r, w := io.Pipe()
	// The reader gets the error; one that stops reading early makes the next write fail, which ends the goroutine.
	go func() { _ = w.CloseWithError(t.writeTar(w)) }()
	return r, nil
}

// writeTar puts the tree into a tar file, in the order of the names, so that one tree makes one digest.
func (t FileTree) writeTar(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := t[name].writeTar(out, name); err != nil {
			return fmt.Errorf("put %s into an image: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end an image's layer: %w", err)
	}
	return nil
}

func (e treeEntry) writeTar(out *tar.Writer, name string) error {
	header := &tar.Header{Name: name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
	switch {
	case e.source != "":
		return copyFile(out, header, e.source)
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	case e.dir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(out, e.text)
	return err
}

func copyFile(out *tar.Writer, header *tar.Header, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Size, header.Mode = info.Size(), int64(info.Mode().Perm())
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Image is a tree of files with a name and the program that runs in it.
type Image struct {
	// Name is what a pod calls it, with a tag.
	Name string
	Tree FileTree
	// Entrypoint is the program; User is UID:GID, root if empty.
	Entrypoint []string
	User       string
}

// WriteFile writes the image as an archive that containerd imports, in one step.
func (i Image) WriteFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make folder of images: %w", err)
	}
	tag, err := name.NewTag(i.Name)
	if err != nil {
		return fmt.Errorf("name image: %w", err)
	}
	image, err := i.buildImage()
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	partial := file + ".partial"
	if err := tarball.WriteToFile(partial, tag, image); err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	return os.Rename(partial, file)
}

func (i Image) buildImage() (v1.Image, error) {
	// An image never leaves this machine, so the time to make it matters and its size does not.
	layer, err := tarball.LayerFromOpener(i.Tree.openTar, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy() // The library keeps the one that it has returned.
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config = v1.Config{User: i.User, Entrypoint: i.Entrypoint, Env: []string{searchPath}}
	return mutate.ConfigFile(image, config)
}
