// SPDX-License-Identifier: Apache-2.0

// Package bucket stores objects in a bucket, with the S3 protocol, or in a folder. Readers see an object only when it
// is complete.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/buildinfo"
)

// Store stores objects. The parts of a key are separated by slashes.
type Store interface {
	// PutObject stores all data of the reader and returns its size in bytes. If the reader fails, nothing is stored.
	PutObject(ctx context.Context, key string, from io.Reader) (int64, error)
	// GetObject opens an object.
	GetObject(ctx context.Context, key string) (io.ReadCloser, error)
	// ListSizes returns the sizes in bytes of the objects with the prefix, by key. The prefix ends with a slash.
	ListSizes(ctx context.Context, prefix string) (map[string]int64, error)
	// DeleteObject removes an object. A missing object is not an error.
	DeleteObject(ctx context.Context, key string) error
}

// ListKeys returns the keys of the objects with the prefix, in order. The prefix ends with a slash.
func ListKeys(ctx context.Context, s Store, prefix string) ([]string, error) {
	sizes, err := s.ListSizes(ctx, prefix)
	return slices.Sorted(maps.Keys(sizes)), err
}

// Config describes the bucket. The credentials come from the same places as those of AWS's own tools, such as
// environment variables.
type Config struct {
	// Folder is the path of the folder to use instead of a bucket. If it is set, the other fields are ignored.
	Folder string
	// Name is the name of the bucket.
	Name string
	// Region and Endpoint (a URL) locate the storage. If they are empty, the environment's settings apply.
	Region, Endpoint string
	// PathStyle puts the bucket's name into the path instead of the host name.
	PathStyle bool
	// CACert is a file with CA certificates. If it is empty, the system's CA certificates are used.
	CACert string
	// Encryption is the server-side encryption to request, such as AES256 or aws:kms. KMSKeyID is a key for aws:kms.
	Encryption, KMSKeyID string
}

// AddFlags adds the flags for the fields.
func (c *Config) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Folder, "folder", "", "folder of the backups, instead of a bucket")
	f.StringVar(&c.Name, "bucket", "", "name of the bucket")
	f.StringVar(&c.Region, "region", "", "region of the bucket")
	f.StringVar(&c.Endpoint, "endpoint", "", "URL of the storage, if it is not AWS's own")
	f.StringVar(&c.CACert, "ca-cert", "", "file with the CA certificates for verifying the certificate of the storage")
	f.StringVar(&c.Encryption, "sse", "", "server-side encryption: AES256, aws:kms or aws:kms:dsse; empty means the default of the bucket")
	f.StringVar(&c.KMSKeyID, "sse-kms-key-id", "", "ID of the key for aws:kms; empty means the default key of the account")
	f.BoolVar(&c.PathStyle, "path-style", false, "put the bucket's name into the path instead of the host name")
}

var errNowhere = errors.New("expected --bucket or --folder, found neither; set one of them")

// OpenStore returns a store. It does not connect yet.
func OpenStore(ctx context.Context, c Config) (Store, error) {
	switch {
	case c.Folder != "":
		return openFolder(c.Folder)
	case c.Name != "":
		return openS3(ctx, c)
	}
	return nil, errNowhere
}

type countingReader struct {
	from io.Reader
	size int64
	// err is the error of the source.
	err error
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.size += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// partialSuffix is the suffix of the names of incomplete files.
const partialSuffix = ".partial"

// folderStore stores objects as files.
type folderStore struct{ root *os.Root }

func openFolder(name string) (*folderStore, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the backups: %w", err)
	}
	return &folderStore{root}, nil
}

// PutObject implements Store.
func (f *folderStore) PutObject(ctx context.Context, key string, from io.Reader) (int64, error) {
	if err := f.root.MkdirAll(path.Dir(key), 0o750); err != nil {
		return 0, fmt.Errorf("create the folder of %s: %w", key, err)
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
		return 0, fmt.Errorf("create the file: %w", err)
	}
	size, err := io.Copy(file, &contextReader{ctx.Err, from})
	return size, errors.Join(err, file.Sync(), file.Close())
}

// GetObject implements Store.
func (f *folderStore) GetObject(_ context.Context, key string) (io.ReadCloser, error) {
	file, err := f.root.Open(key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return file, nil
}

// ListSizes implements Store.
func (f *folderStore) ListSizes(_ context.Context, prefix string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := fs.WalkDir(f.root.FS(), strings.TrimSuffix(prefix, "/"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, partialSuffix) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sizes[name] = info.Size()
		} else if errors.Is(err, fs.ErrNotExist) { // The object was deleted during the listing.
			return nil
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	return sizes, nil
}

// DeleteObject implements Store.
func (f *folderStore) DeleteObject(_ context.Context, key string) error {
	if err := f.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// contextReader fails when its context is cancelled.
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

const (
	// partSize limits the size of an object to 312 GiB, because S3 allows 10000 parts.
	partSize = 32 << 20
	// uploads is the number of concurrent part uploads. Each of them has one part in memory.
	uploads = 2
)

// s3Store stores objects in a bucket.
type s3Store struct {
	client *s3.Client
	upload *transfermanager.Client
	name   string
	// encryption and kmsKeyID apply to uploaded objects; if they are empty, the bucket's default applies.
	encryption types.ServerSideEncryption
	kmsKeyID   *string
}

func openS3(ctx context.Context, c Config) (*s3Store, error) {
	var options []func(*config.LoadOptions) error
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	if c.CACert != "" {
		text, err := os.ReadFile(c.CACert)
		if err != nil {
			return nil, fmt.Errorf("read the storage's certificates: %w", err)
		}
		options = append(options, config.WithCustomCABundle(bytes.NewReader(text)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("read the storage's settings: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1" // Storage other than AWS's expects this region name.
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle, o.DisableLogOutputChecksumValidationSkipped = c.PathStyle, true
		o.APIOptions = append(o.APIOptions, awsmiddleware.AddUserAgentKeyValue("torpor", buildinfo.ReadVersion().Version))
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	upload := transfermanager.New(client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.MultipartUploadThreshold, o.Concurrency = partSize, partSize, uploads
	})
	store := &s3Store{client: client, upload: upload, name: c.Name, encryption: types.ServerSideEncryption(c.Encryption)}
	if c.KMSKeyID != "" {
		store.kmsKeyID = &c.KMSKeyID
	}
	return store, nil
}

// PutObject implements Store.
func (b *s3Store) PutObject(ctx context.Context, key string, from io.Reader) (int64, error) {
	body := &countingReader{from: from}
	if _, err := b.upload.UploadObject(ctx, &transfermanager.UploadObjectInput{
		Bucket: &b.name, Key: &key, Body: body, ServerSideEncryption: b.encryption, SSEKMSKeyID: b.kmsKeyID,
	}); err != nil {
		if body.err != nil {
			return 0, fmt.Errorf("write %s: %w", key, body.err) // The error is the reader's, not the storage's.
		}
		return 0, b.explainError("write "+key, err)
	}
	return body.size, nil
}

// GetObject implements Store.
func (b *s3Store) GetObject(ctx context.Context, key string) (io.ReadCloser, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return nil, b.explainError("read "+key, err)
	}
	return out.Body, nil
}

// ListSizes implements Store.
func (b *s3Store) ListSizes(ctx context.Context, prefix string) (map[string]int64, error) {
	sizes := map[string]int64{}
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.explainError("list "+prefix, err)
		}
		for _, o := range page.Contents {
			sizes[aws.ToString(o.Key)] = aws.ToInt64(o.Size)
		}
	}
	return sizes, nil
}

// DeleteObject implements Store.
func (b *s3Store) DeleteObject(ctx context.Context, key string) error {
	if _, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key}); err != nil {
		return b.explainError("delete "+key, err)
	}
	return nil
}

// explainError adds a hint to an error. The storage's error messages contain the names of keys, but no secrets.
func (b *s3Store) explainError(what string, err error) error {
	hint := "check the bucket's name, region and endpoint"
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		switch answer.ErrorCode() {
		case "NoSuchBucket":
			hint = "create the bucket"
		case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "ExpiredToken":
			hint = "give the Pod credentials for the bucket, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in jobConfig.env"
		}
	}
	return fmt.Errorf("%s in bucket %q: %w; %s", what, b.name, err, hint)
}
