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

// partial ends the names of files that are not whole yet.
const partial = ".partial"

// inFolder keeps objects as files.
type inFolder struct{ root *os.Root }

func openFolder(name string) (*inFolder, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the backups: %w", err)
	}
	return &inFolder{root}, nil
}

// Put implements Bucket.
func (f *inFolder) Put(ctx context.Context, key string, from io.Reader) (int64, error) {
	if err := f.root.MkdirAll(path.Dir(key), 0o750); err != nil {
		return 0, fmt.Errorf("make the folder of %s: %w", key, err)
	}
	size, err := f.write(ctx, key+partial, from)
	if err == nil {
		err = f.root.Rename(key+partial, key)
	}
	if err != nil {
		gone := f.root.Remove(key + partial)
		if errors.Is(gone, fs.ErrNotExist) {
			gone = nil
		}
		return 0, fmt.Errorf("write %s: %w", key, errors.Join(err, gone))
	}
	return size, nil
}

func (f *inFolder) write(ctx context.Context, name string, from io.Reader) (int64, error) {
	file, err := f.root.Create(name)
	if err != nil {
		return 0, fmt.Errorf("make the file: %w", err)
	}
	size, err := io.Copy(file, &ended{ctx.Err, from})
	return size, errors.Join(err, file.Sync(), file.Close())
}

// Get implements Bucket.
func (f *inFolder) Get(_ context.Context, key string) (io.ReadCloser, error) {
	file, err := f.root.Open(key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return file, nil
}

// List implements Bucket.
func (f *inFolder) List(_ context.Context, prefix string) ([]string, error) {
	var keys []string
	err := fs.WalkDir(f.root.FS(), strings.TrimSuffix(prefix, "/"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(name, partial) {
			keys = append(keys, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	return keys, nil
}

// ended stops reading when it has to end.
type ended struct {
	why  func() error
	from io.Reader
}

// Read implements io.Reader.
func (e *ended) Read(p []byte) (int, error) {
	if err := e.why(); err != nil {
		return 0, err
	}
	return e.from.Read(p)
}
