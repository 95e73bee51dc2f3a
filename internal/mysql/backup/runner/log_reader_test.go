// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// countingStore contains one object, and counts the bytes that are read from it. As with a bucket, reading an object
// fails when its context is cancelled.
type countingStore struct {
	bucket.Store

	content []byte
	read    int
}

// GetObject implements bucket.Store.
func (s *countingStore) GetObject(ctx context.Context, _ string) (io.ReadCloser, error) {
	return io.NopCloser(&countingReader{s, ctx.Err, bytes.NewReader(s.content)}), nil
}

type countingReader struct {
	store *countingStore
	ended func() error
	from  io.Reader
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	r.store.read += n
	return n, err
}

// newArchive returns a store with an archive of incompressible logs, and its segments in the given order.
func newArchive(t *testing.T, order []int) (*countingStore, []backup.StoredSegment) {
	t.Helper()
	const size = 256 << 10
	var packed bytes.Buffer
	compressed, err := zstd.NewWriter(&packed)
	testenv.ExpectNoError(t, err)
	archive, random := tar.NewWriter(compressed), rand.NewChaCha8([32]byte{1})
	segments := make([]backup.StoredSegment, len(order))
	for _, number := range order {
		name := fmt.Sprintf("binlog/binlog.%06d", number)
		segments[number] = backup.StoredSegment{Key: "archive", File: name}
		testenv.ExpectNoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}))
		content := make([]byte, size)
		_, err := random.Read(content)
		testenv.ExpectNoError(t, err)
		content[0] = byte(number)
		_, err = archive.Write(content)
		testenv.ExpectNoError(t, err)
	}
	testenv.ExpectNoError(t, archive.Close())
	testenv.ExpectNoError(t, compressed.Close())
	return &countingStore{content: packed.Bytes()}, segments
}

// TestAnArchiveOfLogsIsReadOnce counts the bytes that are read to extract all logs of an archive.
func TestAnArchiveOfLogsIsReadOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		order []int
		times int
	}{
		"logs in order: the archive is read once":         {[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1},
		"one log out of order: the archive is read twice": {[]int{1, 2, 3, 0, 4, 5, 6, 7, 8, 9}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			store, segments := newArchive(t, tt.order)
			logs := &logReader{from: store}
			defer logs.close()
			for i, segment := range segments {
				plain, err := logs.open(t.Context(), segment)
				testenv.ExpectNoError(t, err)
				// Only half of the log is read, as for a restore point in the middle.
				content, err := io.ReadAll(io.LimitReader(plain, 128<<10))
				testenv.ExpectNoError(t, err)
				if len(content) == 0 || int(content[0]) != i {
					t.Errorf("expected log %d, found another", i)
				}
			}
			if store.read > tt.times*len(store.content) {
				t.Errorf("expected at most %d times %d bytes to be read, found %d", tt.times, len(store.content), store.read)
			}
		})
	}
	t.Run("a log that is not in the archive: refused", func(t *testing.T) {
		store, segments := newArchive(t, []int{0, 1})
		logs := &logReader{from: store}
		defer logs.close()
		_, err := logs.open(t.Context(), segments[1])
		testenv.ExpectNoError(t, err)
		if _, err = logs.open(t.Context(), backup.StoredSegment{Key: "archive", File: "binlog/other.000001"}); err == nil {
			t.Error("expected an error, found none")
		}
	})
	t.Run("a waiting read: interrupted", func(t *testing.T) {
		read, write := io.Pipe()
		logs := &logReader{stored: read}
		ended := make(chan error, 1)
		go func() {
			_, err := read.Read(make([]byte, 1))
			ended <- err
		}()
		logs.interrupt()
		if err := <-ended; err == nil {
			t.Error("expected the read to fail, found none")
		}
		testenv.ExpectNoError(t, write.Close())
	})
}
