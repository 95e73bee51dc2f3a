// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	releaseimage "github.com/torpor-dev/torpor/hack/release/image"
)

// The media types of https://helm.sh/docs/topics/registries.
const (
	configType = "application/vnd.cncf.helm.config.v1+json"
	layerType  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// artifact is a manifest with the config and the layer that helm pulls.
type artifact struct {
	manifest, config []byte
	layer            v1.Layer
}

// MediaType implements partial.CompressedImageCore.
func (artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (a artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// RawManifest implements partial.CompressedImageCore.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a artifact) LayerByDigest(wanted v1.Hash) (partial.CompressedLayer, error) {
	digest, err := a.layer.Digest()
	if err != nil {
		return nil, fmt.Errorf("hash the layer: %w", err)
	}
	if digest != wanted {
		return nil, fmt.Errorf("expected the layer %s, found %s", wanted, digest)
	}
	return a.layer, nil
}

// Artifact returns the package as an OCI artifact that helm can pull from a registry.
func (p Package) Artifact() (v1.Image, error) {
	a := artifact{config: p.Metadata, layer: static.NewLayer(p.Archive, layerType)}
	digest, digestErr := a.layer.Digest()
	configDigest, configSize, err := v1.SHA256(bytes.NewReader(p.Metadata))
	if err = errors.Join(err, digestErr); err != nil {
		return nil, fmt.Errorf("describe the chart: %w", err)
	}
	a.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: configType, Digest: configDigest, Size: configSize},
		Layers: []v1.Descriptor{{MediaType: layerType, Digest: digest, Size: int64(len(p.Archive))}},
		Annotations: map[string]string{
			"org.opencontainers.image.title": p.Name, "org.opencontainers.image.version": p.Version,
			"org.opencontainers.image.source": releaseimage.Source, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("describe the chart: %w", err)
	}
	return partial.CompressedToImage(a)
}

// WriteLayout writes an OCI layout with the package into a folder, whose previous contents it replaces.
func (p Package) WriteLayout(folder string) error {
	img, err := p.Artifact()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the earlier layout: %w", err)
	}
	at, err := layout.Write(folder, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return fmt.Errorf("create the layout: %w", err)
	}
	tag := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": p.Version})
	if err := at.AppendImage(img, tag); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// Push pushes the package to a repository such as registry.example/charts/torpor, and returns its name with digest.
// It replaces the + of a version in the tag, as helm does, because tags cannot contain it.
func (p Package) Push(ctx context.Context, repository string) (string, error) {
	ref, err := name.NewTag(repository + ":" + strings.ReplaceAll(p.Version, "+", "_"))
	if err != nil {
		return "", fmt.Errorf("expected a repository such as registry.example/charts/torpor: %w", err)
	}
	img, err := p.Artifact()
	if err != nil {
		return "", err
	}
	if err := remote.Write(ref, img, releaseimage.RegistryOptions(ctx)...); err != nil {
		return "", fmt.Errorf("push the chart: %w", err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("name the chart: %w", err)
	}
	return ref.Context().Digest(digest.String()).String(), nil
}
