// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Image is a tree with a name and what runs in it.
type Image struct {
	// Name is what a pod calls it, with a tag.
	Name string
	Tree Tree
	// Entrypoint is the program; User is UID:GID, root if empty.
	Entrypoint []string
	User       string
}

const (
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	searchPath    = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type configuration struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		User       string   `json:"User,omitempty"`
		Entrypoint []string `json:"Entrypoint"`
		Env        []string `json:"Env"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	Manifests     []descriptor `json:"manifests"`
}

// WriteFile makes the OCI layout in the file, in one step.
func (i Image) WriteFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make folder of images: %w", err)
	}
	layer, err := os.CreateTemp(filepath.Dir(file), "layer-")
	if err != nil {
		return fmt.Errorf("make layer of %s: %w", i.Name, err)
	}
	defer func() { _, _ = layer.Close(), os.Remove(layer.Name()) }()
	sum := sha256.New()
	if err := i.Tree.writeTar(io.MultiWriter(layer, sum)); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("measure layer of %s: %w", i.Name, err)
	}
	described := descriptor{MediaType: mediaLayer, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: size}
	partial, err := os.Create(file + ".partial")
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	err = i.layout(partial, layer, described)
	if err := errors.Join(err, partial.Close()); err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	return os.Rename(partial.Name(), file)
}

func (i Image) layout(to io.Writer, layer io.ReadSeeker, described descriptor) error {
	c := configuration{Architecture: runtime.GOARCH, OS: "linux"}
	c.Config.User, c.Config.Entrypoint, c.Config.Env = i.User, i.Entrypoint, []string{searchPath}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{described.Digest}
	out := layoutWriter{out: tar.NewWriter(to)}
	config := out.blob(mediaConfig, c)
	m := out.blob(mediaManifest, manifest{SchemaVersion: 2, MediaType: mediaManifest, Config: config, Layers: []descriptor{described}})
	_, tag, _ := strings.Cut(i.Name, ":")
	m.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": tag}
	out.json("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	out.json("index.json", index{SchemaVersion: 2, Manifests: []descriptor{m}})
	_, err := layer.Seek(0, io.SeekStart)
	out.fail(err)
	out.file(blobName(described.Digest), described.Size, layer)
	out.fail(out.out.Close())
	return out.err
}

func blobName(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

// layoutWriter writes the files of a layout and keeps the first error.
type layoutWriter struct {
	out *tar.Writer
	err error
}

func (w *layoutWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *layoutWriter) blob(mediaType string, content any) descriptor {
	data, err := json.Marshal(content)
	w.fail(err)
	sum := sha256.Sum256(data)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data))}
	w.json(blobName(d.Digest), content)
	return d
}

func (w *layoutWriter) json(name string, content any) {
	data, err := json.Marshal(content)
	w.fail(err)
	w.file(name, int64(len(data)), strings.NewReader(string(data)))
}

func (w *layoutWriter) file(name string, size int64, content io.Reader) {
	w.fail(w.out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg}))
	_, err := io.Copy(w.out, content)
	w.fail(err)
}
