// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
)

// maxSegmentSize is the compressed size at which a segment is closed. Until then its object is replaced with a longer
// one when transactions arrive.
const maxSegmentSize = 8 << 20

// openSegment is a growing segment of the binary log: a file of zstd frames, one for each upload.
type openSegment struct {
	binlogparser.SegmentHeader

	key    string
	file   *os.File
	packer *zstd.Encoder
	format binlogparser.BinlogEvent
	// hasNews is true if transactions were added since the last upload.
	hasNews bool
}

func createSegment(dir, key string, format binlogparser.BinlogEvent, header binlogparser.SegmentHeader) (*openSegment, error) {
	file, err := os.CreateTemp(dir, segmentFile)
	if err != nil {
		return nil, fmt.Errorf("create a segment: %w", err)
	}
	packer, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the compression: %w", err), file.Close(), os.Remove(file.Name()))
	}
	s := &openSegment{SegmentHeader: header, key: key, file: file, packer: packer, format: format}
	if _, err := packer.Write(append([]byte(binlogparser.FileMagic), format.Raw...)); err != nil {
		return nil, errors.Join(fmt.Errorf("begin a segment: %w", err), s.remove())
	}
	return s, nil
}

// takes reports whether the next transaction belongs to this segment.
func (s *openSegment) takes(head binlogparser.TransactionHead, format binlogparser.BinlogEvent) (bool, error) {
	size, err := s.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, fmt.Errorf("measure a segment: %w", err)
	}
	return size < maxSegmentSize && head.Committed.Sub(s.First) <= backup.MaxSegmentSpan && head.Committed.Sub(s.First) >= -backup.MaxSegmentSpan &&
		s.format.IsCompatible(format), nil
}

func (s *openSegment) add(head binlogparser.TransactionHead) {
	s.GTIDs, s.hasNews = s.GTIDs.Union(head.GTID), true
	if head.Committed.After(s.Last) {
		s.Last = head.Committed
	}
}

// store uploads the whole segment to the bucket.
func (s *openSegment) store(ctx context.Context, to bucket.Store) error {
	if err := s.packer.Close(); err != nil {
		return fmt.Errorf("compress a segment: %w", err)
	}
	size, err := s.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("measure a segment: %w", err)
	}
	head, err := s.Encode()
	if err != nil {
		return err
	}
	if _, err := to.PutObject(ctx, s.key, io.MultiReader(bytes.NewReader(head), io.NewSectionReader(s.file, 0, size))); err != nil {
		return err
	}
	s.packer.Reset(s.file)
	s.hasNews = false
	return nil
}

func (s *openSegment) remove() error {
	return errors.Join(s.packer.Close(), s.file.Close(), os.Remove(s.file.Name()))
}
