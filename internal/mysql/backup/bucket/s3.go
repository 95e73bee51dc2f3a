// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

const (
	// partSize times the 10000 parts that S3 allows is the most that an object holds: 320 GB.
	partSize = 32 << 20
	// uploads at the same time; each holds a part in memory.
	uploads = 2
)

// s3Store keeps objects in a bucket.
type s3Store struct {
	client *s3.Client
	upload *transfermanager.Client
	name   string
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
		cfg.Region = "us-east-1" // What storages other than AWS's call themselves.
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle, o.DisableLogOutputChecksumValidationSkipped = c.PathStyle, true
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	upload := transfermanager.New(client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.MultipartUploadThreshold, o.Concurrency = partSize, partSize, uploads
	})
	return &s3Store{client: client, upload: upload, name: c.Name}, nil
}

// PutObject implements Bucket.
func (b *s3Store) PutObject(ctx context.Context, key string, from io.Reader) (int64, error) {
	body := &countingReader{from: from}
	if _, err := b.upload.UploadObject(ctx, &transfermanager.UploadObjectInput{Bucket: &b.name, Key: &key, Body: body}); err != nil {
		return 0, b.explainError("write "+key, err)
	}
	return body.size, nil
}

// GetObject implements Bucket.
func (b *s3Store) GetObject(ctx context.Context, key string) (io.ReadCloser, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return nil, b.explainError("read "+key, err)
	}
	return out.Body, nil
}

// ListKeys implements Bucket.
func (b *s3Store) ListKeys(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.explainError("list "+prefix, err)
		}
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
	}
	return keys, nil
}

// explainError adds what to do. The storage's answers hold no secrets, only the names of keys.
func (b *s3Store) explainError(what string, err error) error {
	hint := "look at the bucket's name, region and endpoint"
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		switch answer.ErrorCode() {
		case "NoSuchBucket":
			hint = "make the bucket"
		case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "ExpiredToken":
			hint = "give the Pod credentials for the bucket, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in jobConfig.env"
		}
	}
	return fmt.Errorf("%s in bucket %q: %w; %s", what, b.name, err, hint)
}
