// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
)

// logReader reads binary logs from the bucket in sequence. An archive of several logs stays open, so its next log is
// read without a new request. The archive is reopened only to read an earlier log.
type logReader struct {
	from bucket.Store

	// object is the open object, with its key.
	object packedObject
	key    string
	// entries reads the archive. It is nil if the object is a single log.
	entries *tar.Reader

	mu sync.Mutex
	// stored is the part of the object that interrupt closes.
	stored io.Closer
}

// open returns a log, which can be read until the next call. Later reads use the same context.
func (r *logReader) open(ctx context.Context, segment backup.StoredSegment) (io.Reader, error) {
	if segment.File != "" && r.entries != nil && r.key == segment.Key {
		if isFound, err := r.advance(segment.File); err != nil || isFound {
			return r.entries, err
		}
	}
	if err := r.begin(ctx, segment.Key); err != nil {
		return nil, err
	}
	if segment.File == "" {
		return r.object.plain, nil
	}
	r.entries = tar.NewReader(r.object.plain)
	isFound, err := r.advance(segment.File)
	if err == nil && !isFound {
		err = fmt.Errorf("read %s: expected the file %s in it, found none", segment.Key, segment.File)
	}
	return r.entries, err
}

// begin closes the current object and opens another one.
func (r *logReader) begin(ctx context.Context, key string) error {
	r.close()
	object, err := openPacked(ctx, r.from, key)
	if err != nil {
		return err
	}
	r.object, r.key = object, key
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = object.stored
	return nil
}

// advance reads the archive up to the beginning of a file. It returns false if the rest of the archive does not contain
// the file.
func (r *logReader) advance(file string) (bool, error) {
	for {
		entry, err := r.entries.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read %s: find %s: %w", r.key, file, err)
		}
		if entry.Name == file {
			return true, nil
		}
	}
}

// interrupt closes the object to unblock a read in another goroutine.
func (r *logReader) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored != nil {
		_ = r.stored.Close() // The object was only read.
	}
}

func (r *logReader) close() {
	r.mu.Lock()
	r.stored = nil
	r.mu.Unlock()
	r.object.close()
	r.object, r.key, r.entries = packedObject{}, "", nil
}
