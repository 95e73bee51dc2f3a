// SPDX-License-Identifier: Apache-2.0

// Package image builds Torpor's image from compiled programs, without Docker: an index with an image for each
// platform, and a bill of materials for each image. The same programs result in the same digests.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/torpor-dev/torpor/hack/release/sbom"
	"github.com/torpor-dev/torpor/internal/buildinfo"
)

const (
	// ProgramPath is the path of the program in the image.
	ProgramPath = "/torpor"
	// UserAndGroup are the user and the group of the process.
	UserAndGroup = "65532:65532"
	// Source is the address of the source repository. Registries show it as a link on the page of an artifact.
	Source = "https://github.com/torpor-dev/torpor"
)

// Release is an index with its bills of materials.
type Release struct {
	Index v1.ImageIndex
	Bills []ImageBill
}

// ImageBill is the bill of materials of the image of one platform.
type ImageBill struct {
	Platform string
	Document []byte
	// artifact is the OCI artifact that refers to the image.
	artifact v1.Image
}

// Build builds an image of each program, one per platform.
func Build(paths ...string) (Release, error) {
	r := Release{Index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	if len(paths) == 0 {
		return r, errors.New("expected a program for each platform, found none")
	}
	var seen []string
	for _, path := range paths {
		p, err := readProgram(path)
		if err != nil {
			return r, err
		}
		if slices.Contains(seen, p.platform.String()) {
			return r, fmt.Errorf("expected one program for each platform, found a second one for %s: %s", p.platform, path)
		}
		seen = append(seen, p.platform.String())
		img, err := p.buildImage()
		if err != nil {
			return r, err
		}
		r.Index = mutate.AppendManifests(r.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p.platform}})
		bill, err := p.buildBill(img)
		if err != nil {
			return r, err
		}
		r.Bills = append(r.Bills, bill)
	}
	return r, nil
}

func (p compiledProgram) buildImage() (v1.Image, error) {
	system, err := buildLayer(p.committed, systemFiles())
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(p.path)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	own, err := buildLayer(p.committed, []layerFile{{name: ProgramPath[1:], mode: 0o755, content: code}})
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, system, own); err != nil {
		return nil, fmt.Errorf("put the image together: %w", err)
	}
	config := v1.ConfigFile{
		OS: p.platform.OS, Architecture: p.platform.Architecture, Created: v1.Time{Time: p.committed},
		Config: v1.Config{Entrypoint: []string{ProgramPath}, User: UserAndGroup, WorkingDir: "/", Labels: map[string]string{
			"org.opencontainers.image.title": "torpor", "org.opencontainers.image.description": "The off switch for Kubernetes",
			"org.opencontainers.image.source": Source, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version": p.info.Main.Version, "org.opencontainers.image.revision": p.setting("vcs.revision"),
			"org.opencontainers.image.created": p.committed.Format(time.RFC3339),
		}},
	}
	before, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("put the image together: %w", err)
	}
	config.RootFS, config.History = before.RootFS, before.History
	if img, err = mutate.ConfigFile(img, &config); err != nil {
		return nil, fmt.Errorf("put the image together: %w", err)
	}
	return img, nil
}

// layerFile is a file, or a folder if its name ends with a slash.
type layerFile struct {
	name    string
	mode    int64
	content []byte
}

// systemFiles returns the files that a program expects on any system: an entry for its user, and a folder for
// temporary files.
func systemFiles() []layerFile {
	return []layerFile{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n")},
		{name: "tmp/", mode: 0o1777},
	}
}

func buildLayer(at time.Time, files []layerFile) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.name[len(f.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write %s into a layer: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("write %s into a layer: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("close the archive of a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("compress a layer: %w", err)
	}
	return layer, nil
}

// buildBill returns the OCI artifact that refers to an image: a manifest whose subject is the image and whose layer
// is the document.
func (p compiledProgram) buildBill(subject v1.Image) (ImageBill, error) {
	b := ImageBill{Platform: p.platform.String()}
	var err error
	if b.Document, err = sbom.Describe(p.info); err != nil {
		return b, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbom.MediaType)
	if artifact, err = mutate.AppendLayers(artifact, static.NewLayer(b.Document, sbom.MediaType)); err != nil {
		return b, fmt.Errorf("put the bill of materials together: %w", err)
	}
	size, sizeErr := subject.Size()
	digest, err := subject.Digest()
	if err = errors.Join(err, sizeErr); err != nil {
		return b, fmt.Errorf("refer to the image: %w", err)
	}
	of := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
	referring, ok := mutate.Subject(artifact, of).(v1.Image)
	if !ok {
		return b, errors.New("expected an image that refers to another image, found another type")
	}
	b.artifact = referring
	return b, nil
}

// WriteLayout writes an OCI layout into a folder, whose previous contents it replaces. The index of the layout lists
// only the image, because an import would try to unpack a listed bill of materials. If imageName is set, an import
// stores the image under this name.
func (r Release) WriteLayout(folder, imageName string) error {
	var options []layout.Option
	if imageName != "" {
		annotations, err := nameAnnotations(imageName)
		if err != nil {
			return err
		}
		options = append(options, layout.WithAnnotations(annotations))
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the earlier layout: %w", err)
	}
	at, err := layout.Write(folder, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return fmt.Errorf("create the layout: %w", err)
	}
	if err := at.AppendIndex(r.Index, options...); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return nil
}

// ValidateName returns an error for a name that WriteLayout would reject, so that a caller can check the name before
// a build.
func ValidateName(imageName string) error {
	_, err := nameAnnotations(imageName)
	return err
}

// containerdName is the annotation with the name under which containerd imports an image.
const containerdName = "io.containerd.image.name"

// nameAnnotations returns the same annotations that BuildKit writes: the full name for containerd, and the tag for
// other tools. A Pod's image reference is expanded in the same way, so that torpor:dev refers to
// docker.io/library/torpor:dev.
func nameAnnotations(imageName string) (map[string]string, error) {
	named, err := reference.ParseNormalizedNamed(imageName)
	if err != nil {
		return nil, fmt.Errorf("expected a name such as torpor:dev, found %q: %w", imageName, err)
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	if _, hasDigest := named.(reference.Digested); hasDigest || !ok {
		return nil, fmt.Errorf("expected a name with a tag, such as torpor:dev, found a digest in %q; the digest follows from the contents", imageName)
	}
	return map[string]string{containerdName: tagged.String(), "org.opencontainers.image.ref.name": tagged.Tag()}, nil
}

// WriteArchive packs a layout of WriteLayout into an archive that containerd imports. The archive is reproducible.
func WriteArchive(folder, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("create the archive: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return addToArchive(w, folder, path, entry)
	})
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}

func addToArchive(w *tar.Writer, folder, path string, entry fs.DirEntry) error {
	if entry.IsDir() {
		return w.WriteHeader(&tar.Header{Name: path + "/", Mode: 0o755, Typeflag: tar.TypeDir})
	}
	in, err := os.Open(filepath.Join(folder, path))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

// RegistryOptions returns the options of a registry client, with the local credentials of docker or podman.
func RegistryOptions(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithUserAgent(buildinfo.UserAgent("torpor-release")),
	}
}

// Push pushes the image and its bills of materials to a registry, with the local credentials of docker or podman,
// and returns the name with digest.
func (r Release) Push(ctx context.Context, target string) (string, error) {
	ref, err := name.ParseReference(target)
	if err != nil {
		return "", fmt.Errorf("expected a name such as registry.example/torpor:v1.0.0: %w", err)
	}
	options := RegistryOptions(ctx)
	if err := remote.WriteIndex(ref, r.Index, options...); err != nil {
		return "", fmt.Errorf("push the image: %w", err)
	}
	for _, b := range r.Bills {
		digest, err := b.artifact.Digest()
		if err != nil {
			return "", fmt.Errorf("name the bill of materials: %w", err)
		}
		if err := remote.Write(ref.Context().Digest(digest.String()), b.artifact, options...); err != nil {
			return "", fmt.Errorf("push the bill of materials: %w", err)
		}
	}
	digest, err := r.Index.Digest()
	if err != nil {
		return "", fmt.Errorf("compute the digest of the image: %w", err)
	}
	return ref.Context().Digest(digest.String()).String(), nil
}
