// SPDX-License-Identifier: Apache-2.0

// Package bucket stores objects in a bucket with S3's protocol or in a folder. An object is there only as a whole.
package bucket

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"
)

// Store stores objects. Keys have slashes, as paths have.
type Store interface {
	// PutObject stores everything that from yields and returns its size in bytes. If from fails, nothing is stored.
	PutObject(ctx context.Context, key string, from io.Reader) (int64, error)
	// GetObject opens an object.
	GetObject(ctx context.Context, key string) (io.ReadCloser, error)
	// ListKeys returns the keys that begin with the prefix, in any order. The prefix ends with a slash.
	ListKeys(ctx context.Context, prefix string) ([]string, error)
}

// Config says which bucket. The credentials are in the environment, where AWS's own tools look for them.
type Config struct {
	// Folder is a path; if it is set, the rest is not used.
	Folder string
	// Name of the bucket.
	Name string
	// Region and Endpoint, a URL, of the storage; empty means what the environment says.
	Region, Endpoint string
	// PathStyle puts the bucket's name into the path instead of the host name.
	PathStyle bool
	// CACert is a file with certificates; empty means the machine's.
	CACert string
}

// AddFlags adds the flags of a command line.
func (c *Config) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Folder, "folder", "", "folder of the backups, instead of a bucket")
	f.StringVar(&c.Name, "bucket", "", "name of the bucket")
	f.StringVar(&c.Region, "region", "", "region of the bucket")
	f.StringVar(&c.Endpoint, "endpoint", "", "URL of the storage, if it is not AWS's own")
	f.StringVar(&c.CACert, "ca-cert", "", "file with the certificates that the storage is trusted by")
	f.BoolVar(&c.PathStyle, "path-style", false, "put the bucket's name into the path instead of the host name")
}

var errNowhere = errors.New("expected --bucket or --folder, found neither; say where the backups are")

// OpenStore makes no connection yet.
func OpenStore(ctx context.Context, c Config) (Store, error) {
	switch {
	case c.Folder != "":
		return openFolder(c.Folder)
	case c.Name != "":
		return openS3(ctx, c)
	}
	return nil, errNowhere
}

// countingReader counts the bytes that are read.
type countingReader struct {
	from io.Reader
	size int64
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.size += int64(n)
	return n, err
}
