// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// partialSuffix ends the names of files that are not whole yet.
const partialSuffix = ".partial"

// folderStore keeps objects as files.
type folderStore struct{ root *os.Root }

func openFolder(name string) (*folderStore, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the backups: %w", err)
	}
	return &folderStore{root}, nil
}

// PutObject implements Bucket.
func (f *folderStore) PutObject(ctx context.Context, key string, from io.Reader) (int64, error) {
	if err := f.root.MkdirAll(path.Dir(key), 0o750); err != nil {
		return 0, fmt.Errorf("make the folder of %s: %w", key, err)
	}
	size, err := f.writeFile(ctx, key+partialSuffix, from)
	if err == nil {
		err = f.root.Rename(key+partialSuffix, key)
	}
	if err != nil {
		removeErr := f.root.Remove(key + partialSuffix)
		if errors.Is(removeErr, fs.ErrNotExist) {
			removeErr = nil
		}
		return 0, fmt.Errorf("write %s: %w", key, errors.Join(err, removeErr))
	}
	return size, nil
}

func (f *folderStore) writeFile(ctx context.Context, name string, from io.Reader) (int64, error) {
	file, err := f.root.Create(name)
	if err != nil {
		return 0, fmt.Errorf("make the file: %w", err)
	}
	size, err := io.Copy(file, &contextReader{ctx.Err, from})
	return size, errors.Join(err, file.Sync(), file.Close())
}

// GetObject implements Bucket.
func (f *folderStore) GetObject(_ context.Context, key string) (io.ReadCloser, error) {
	file, err := f.root.Open(key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return file, nil
}

// ListKeys implements Bucket.
func (f *folderStore) ListKeys(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	err := fs.WalkDir(f.root.FS(), strings.TrimSuffix(prefix, "/"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(name, partialSuffix) {
			keys = append(keys, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	return keys, nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	why  func() error
	from io.Reader
}

// Read implements io.Reader.
func (e *contextReader) Read(p []byte) (int, error) {
	if err := e.why(); err != nil {
		return 0, err
	}
	return e.from.Read(p)
}
