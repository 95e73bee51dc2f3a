// SPDX-License-Identifier: Apache-2.0

package binlogparser

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// SegmentHeader describes the part of the binary log in one segment of the bucket.
type SegmentHeader struct {
	// Previous is the set of transactions before the segment, and GTIDs the set of transactions in it.
	Previous gtid.Set `json:"previous"`
	GTIDs    gtid.Set `json:"gtids"`
	// First and Last are the commit times of the first and the last transaction.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Until is the time up to which every commit is in this segment or an earlier one.
	Until time.Time `json:"until"`
	// Source is the server_uuid of the instance from which the segment was read.
	Source string `json:"source"`
}

const (
	// skippableFrame is the beginning of a frame that zstd skips, so `zstd -dc FILE | mysqlbinlog -` reads a segment.
	skippableFrame = 0x184D2A50
	frameHeadSize  = 8
	// maxSegmentHeader is far larger than real GTID sets.
	maxSegmentHeader = 16 << 20
)

// Encode returns the header in the format in which it is stored at the beginning of a segment.
func (h SegmentHeader) Encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the header of a segment: %w", err)
	}
	if len(text) > maxSegmentHeader {
		return nil, fmt.Errorf("expected GTID sets of at most %d bytes, found %d", maxSegmentHeader, len(text))
	}
	head := binary.LittleEndian.AppendUint32(nil, skippableFrame)
	for shift := range 4 {
		head = append(head, byte(len(text)>>(8*shift)&0xff))
	}
	return append(head, text...), nil
}

// ReadSegmentHeader reads the header of a segment.
func ReadSegmentHeader(from io.Reader) (SegmentHeader, error) {
	var head [frameHeadSize]byte
	var h SegmentHeader
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return h, fmt.Errorf("read the header of a segment: %w", err)
	}
	size := binary.LittleEndian.Uint32(head[4:])
	if binary.LittleEndian.Uint32(head[:]) != skippableFrame || size > maxSegmentHeader {
		return h, errors.New("expected a segment of the binary log, found other data")
	}
	if err := json.NewDecoder(io.LimitReader(from, int64(size))).Decode(&h); err != nil {
		return h, fmt.Errorf("read the header of a segment: %w", err)
	}
	return h, nil
}

// ReadWholeLog reads a binary log to its end and describes its transactions. Previous, Until and Source are not set.
func ReadWholeLog(from io.Reader) (SegmentHeader, error) {
	var h SegmentHeader
	buffered := bufio.NewReaderSize(from, readBuffer)
	var magic [len(FileMagic)]byte
	if _, err := io.ReadFull(buffered, magic[:]); err != nil || string(magic[:]) != FileMagic {
		return h, fmt.Errorf("expected a binary log, found other data (%w)", err)
	}
	for {
		event, err := ReadEvent(buffered)
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return h, err
		}
		if !event.BeginsTransaction() {
			continue
		}
		head, err := event.ParseTransactionHead()
		if err != nil {
			return h, err
		}
		if _, err := io.CopyN(io.Discard, buffered, head.Size-int64(len(event.Raw))); err != nil {
			return h, fmt.Errorf("read transaction %s: %w", head.GTID, err)
		}
		if h.GTIDs.IsEmpty() {
			h.First = head.Committed
		}
		h.GTIDs = h.GTIDs.Union(head.GTID)
		if head.Committed.After(h.Last) {
			h.Last = head.Committed
		}
	}
}

// readBuffer is the size of the buffer for reading events.
const readBuffer = 1 << 20
