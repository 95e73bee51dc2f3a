// SPDX-License-Identifier: Apache-2.0

// Package archive packs files into reproducible archives, whose bytes depend only on the files.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"time"
)

// File is a file in an archive.
type File struct {
	Name    string
	Content []byte
	// IsProgram makes the file executable.
	IsProgram bool
}

// Pack returns a compressed tar archive of the files, sorted by name, with the Unix epoch as the modification time.
func Pack(files ...File) ([]byte, error) {
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("begin the archive: %w", err)
	}
	w := tar.NewWriter(zipped)
	sorted := slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range sorted {
		if err := f.writeTo(w); err != nil {
			return nil, fmt.Errorf("write %s into the archive: %w", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	return packed.Bytes(), nil
}

func (f File) writeTo(w *tar.Writer) error {
	header := &tar.Header{
		Name: f.Name, Mode: 0o644, Size: int64(len(f.Content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	}
	if f.IsProgram {
		header.Mode = 0o755
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(f.Content)
	return err
}
