// SPDX-License-Identifier: Apache-2.0

package images

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

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
