// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/torpor-dev/torpor/hack/release/krew"
)

const checksums = "checksums.txt"

// Artifact is a file, or an OCI layout if its name ends with a slash.
type Artifact struct {
	Name string
	Size int64
	// Digest is the SHA-256 of a file, or the digest of the image or chart in a layout.
	Digest string
}

// ListExpected returns the sorted names of all artifacts of a version for some machines. The list is independent of
// the build, so that a build fails if it omits an artifact.
func ListExpected(version string, machines []krew.Machine, isDryRun bool) []string {
	names := []string{
		"install.yaml", "torpor.yaml", "moco.yaml", "torpor-bundle.tar.gz",
		"torpor-" + strings.TrimPrefix(version, "v") + ".tgz", "chart/", "image/", "release-notes.md", checksums,
	}
	platforms := []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"}
	for program, platforms := range map[string][]string{
		"torpor":         platforms,
		"kubectl-torpor": append(slices.Clone(platforms), "windows_amd64"),
		"kubectl-moco":   append(slices.Clone(platforms), "windows_amd64"),
	} {
		for _, platform := range platforms {
			if !slices.ContainsFunc(machines, func(m krew.Machine) bool { return m.OS+"_"+m.Architecture == platform }) {
				continue
			}
			names = append(names, program+"_"+platform+".tar.gz", program+"_"+platform+".cdx.json")
		}
	}
	if isDryRun {
		names = append(names, signatureFile, publicKeyFile)
	}
	slices.Sort(names)
	return names
}

// isSummed reports whether an artifact has a checksum. Layouts have digests instead, the notes are only the text of
// the release, and the signature signs the checksums.
func isSummed(name string) bool {
	return !strings.HasSuffix(name, "/") &&
		!slices.Contains([]string{"release-notes.md", checksums, signatureFile, publicKeyFile}, name)
}

// Check returns the artifacts in a folder, and an error that lists each artifact that is missing, empty or
// unexpected, or whose checksum or signature is wrong.
func Check(folder string, expected []string) ([]Artifact, error) {
	var found []Artifact
	var problems []error
	for _, name := range expected {
		a, err := inspect(folder, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Errorf("expected the artifact %s, found none", name))
		case err != nil:
			problems = append(problems, fmt.Errorf("inspect %s: %w", name, err))
		case a.Size == 0:
			problems = append(problems, fmt.Errorf("expected %s to have content, found an empty file", name))
		default:
			found = append(found, a)
		}
	}
	entries, err := os.ReadDir(folder)
	problems = append(problems, err)
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() {
			name += "/"
		}
		if !slices.Contains(expected, name) {
			problems = append(problems, fmt.Errorf("expected no artifact %s; add it to the list or do not build it", name))
		}
	}
	problems = append(problems, checkSums(folder, found))
	if slices.Contains(expected, signatureFile) {
		problems = append(problems, verifySignature(folder))
	}
	return found, errors.Join(problems...)
}

func inspect(folder, name string) (Artifact, error) {
	a := Artifact{Name: name}
	path := filepath.Join(folder, name)
	if !strings.HasSuffix(name, "/") {
		sum, size, err := sumFile(path)
		a.Size, a.Digest = size, "sha256:"+sum
		return a, err
	}
	text, err := os.ReadFile(filepath.Join(path, "index.json"))
	if err != nil {
		return a, err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(text, &index); err != nil {
		return a, fmt.Errorf("read the index: %w", err)
	}
	if len(index.Manifests) != 1 {
		return a, fmt.Errorf("expected one manifest in the index, found %d", len(index.Manifests))
	}
	a.Digest = index.Manifests[0].Digest.String()
	a.Size, err = checkBlobs(filepath.Join(path, "blobs", "sha256"))
	return a, err
}

// checkBlobs returns the size of the blobs of a layout, and an error if the digest of a blob differs from its name.
func checkBlobs(folder string) (int64, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	var all int64
	for _, entry := range entries {
		sum, size, err := sumFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return 0, err
		}
		if sum != entry.Name() {
			return 0, fmt.Errorf("expected the blob %s, found the content of %s", entry.Name(), sum)
		}
		all += size
	}
	return all, nil
}

// checkSums compares the artifacts with the file of checksums.
func checkSums(folder string, found []Artifact) error {
	text, err := os.ReadFile(filepath.Join(folder, checksums))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Check already reports the file as missing.
	}
	if err != nil {
		return fmt.Errorf("read the checksums: %w", err)
	}
	var want bytes.Buffer
	for _, a := range found {
		if isSummed(a.Name) {
			fmt.Fprintf(&want, "%s  %s\n", strings.TrimPrefix(a.Digest, "sha256:"), a.Name)
		}
	}
	if !bytes.Equal(text, want.Bytes()) {
		return fmt.Errorf("%s: expected the checksums of the artifacts, found other checksums", checksums)
	}
	return nil
}

func sumFile(path string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	h := sha256.New()
	size, err = io.Copy(h, file)
	return hex.EncodeToString(h.Sum(nil)), size, err
}
