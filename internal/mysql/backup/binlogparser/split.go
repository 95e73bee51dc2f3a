// SPDX-License-Identifier: Apache-2.0

package binlogparser

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// CopyTransaction copies the events of a transaction to the splitter, in uncompressed form.
func CopyTransaction(from io.Reader, to *StatementSplitter, checksummed bool) error {
	return eachEvent(from, checksummed, func(e BinlogEvent, has bool) error {
		_, err := to.Write(e.withChecksum(has, checksummed).Raw)
		return err
	})
}

// ListErrorCodes returns the error codes of the statements in a transaction that failed on the source.
func ListErrorCodes(from io.Reader, checksummed bool) (codes []int, err error) {
	err = eachEvent(from, checksummed, func(e BinlogEvent, _ bool) error {
		if e.EventType() == QueryEvent && e.errorCode() != 0 {
			codes = append(codes, e.errorCode())
		}
		return nil
	})
	return codes, err
}

// StatementSplitter splits statements that change many rows, and repeats the table descriptions. mysqlbinlog prints the
// rows of a statement as a single text, which mysql and the server keep in memory and which max_allowed_packet limits.
// A server applies rows one by one, so the result is the same. The splitter also removes NO_BACKSLASH_ESCAPES from the
// SQL mode of transactions, because some tables cannot be opened in this mode.
type StatementSplitter struct {
	// To is the destination of the events.
	To io.Writer
	// Checksummed is true if events end with checksums.
	Checksummed bool
	// Limit is the number of bytes of row events at which a statement is split.
	Limit int
	// CanSplit, if set, reports whether statements that change a table may be split. It is called for statements that
	// reach the limit.
	CanSplit func(schema, table string) bool
	// SeeTable, if set, is called with the name of each table before its description is written.
	SeeTable func(schema, table string)

	tables  [][]byte
	size    int
	isEnded bool
}

// Write implements io.Writer. Each call must pass one complete event.
func (s *StatementSplitter) Write(raw []byte) (int, error) {
	t := raw[4]
	switch {
	case t == tableMapEvent:
		s.tables = append(s.tables, bytes.Clone(raw))
		if s.SeeTable != nil {
			s.SeeTable(parseTableName(raw))
		}
	case isRows(t):
		return s.writeRows(raw)
	case t == QueryEvent:
		s.endStatement()
		if _, err := s.To.Write(BinlogEvent{raw}.withBackslashEscapes(s.Checksummed).Raw); err != nil {
			return 0, err
		}
		return len(raw), nil
	default:
		s.endStatement()
	}
	return s.To.Write(raw)
}

func (s *StatementSplitter) canSplit() bool {
	return s.CanSplit == nil || !slices.ContainsFunc(s.tables, func(raw []byte) bool { return !s.CanSplit(parseTableName(raw)) })
}

// parseTableName returns the name in a table description.
func parseTableName(raw []byte) (schema, table string) {
	body := fieldReader{left: raw[headerSize:]}
	body.take(tableIDSize + 2) // These are the table number and flags.
	schema = string(body.sub(body.fixed(1)).left)
	body.take(1)
	return schema, string(body.sub(body.packed()).left)
}

func (s *StatementSplitter) endStatement() { s.tables, s.size, s.isEnded = nil, 0, false }

func (s *StatementSplitter) writeRows(raw []byte) (int, error) {
	if s.isEnded {
		for _, table := range s.tables {
			if _, err := s.To.Write(table); err != nil {
				return 0, err
			}
		}
		s.isEnded, s.size = false, 0
	}
	s.size += len(raw)
	length := len(raw)
	switch {
	case hasRowsFlag(raw, endsStatement):
		s.endStatement()
	case s.size >= s.Limit && s.canSplit():
		raw = BinlogEvent{raw}.withRowsFlag(endsStatement, s.Checksummed).Raw
		s.isEnded = true
	}
	if _, err := s.To.Write(raw); err != nil {
		return 0, err
	}
	return length, nil
}

// isRows reports whether events of a type contain rows.
func isRows(t byte) bool {
	return t >= firstRowsEvent && t <= lastRowsEvent || t >= firstNewRowsEvent && t <= lastNewRowsEvent || t == partialRowsEvent
}

// eachEvent calls f for each event, including the events of compressed transactions. The second argument of f is
// whether the event ends with a checksum. A compressed transaction is read as a stream, because it may be too large for
// the memory.
func eachEvent(from io.Reader, checksummed bool, f func(BinlogEvent, bool) error) error {
	for {
		head, err := readHeader(from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if head.eventType() == payloadEvent {
			err = eachEventOfPayload(from, head.restSize(), checksummed, f)
		} else {
			var e BinlogEvent
			if e, err = head.readRest(from); err == nil {
				err = f(e, checksummed)
			}
		}
		if err != nil {
			return err
		}
	}
}

// The fields of a payloadEvent, and the compression types of its events.
const (
	endField         = 0
	compressionField = 2
	compressedByZstd = 0
	notCompressed    = 255
	// maxPayloadField limits the size of a field in front of the events.
	maxPayloadField = 1 << 10
)

func eachEventOfPayload(from io.Reader, size int64, checksummed bool, f func(BinlogEvent, bool) error) error {
	fields := payloadReader{from: &io.LimitedReader{R: from, N: size}}
	compression := int64(notCompressed)
	for {
		field := fields.packed()
		if field == endField || fields.err != nil {
			break
		}
		value := fieldReader{left: fields.take(fields.packed())}
		if field == compressionField {
			compression = value.packed()
		}
	}
	if checksummed {
		fields.from.N -= checksumSize
	}
	if fields.err == nil && fields.from.N < 0 {
		fields.err = io.ErrUnexpectedEOF
	}
	if fields.err != nil {
		return fmt.Errorf("expected a compressed transaction in the binary log, found a shorter event (%w)", fields.err)
	}
	if err := eachEventOf(fields.from, compression, f); err != nil {
		return err
	}
	if checksummed {
		fields.from.N += checksumSize
	}
	_, err := io.Copy(io.Discard, fields.from)
	return err
}

func eachEventOf(events io.Reader, compression int64, f func(BinlogEvent, bool) error) error {
	switch compression {
	case notCompressed:
		return eachEvent(events, false, f)
	case compressedByZstd:
		plain, err := zstd.NewReader(events, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return fmt.Errorf("decompress a transaction: %w", err)
		}
		defer plain.Close()
		return eachEvent(plain, false, f)
	default:
		return inseparable("a transaction with the compression %d", compression)
	}
}

// payloadReader reads the fields in front of the events of a payloadEvent.
type payloadReader struct {
	from *io.LimitedReader
	err  error
}

func (r *payloadReader) take(size int64) []byte {
	if r.err == nil && (size < 0 || size > maxPayloadField) {
		r.err = fmt.Errorf("expected a field of at most %d bytes, found %d", maxPayloadField, size)
	}
	if r.err != nil {
		return nil
	}
	taken := make([]byte, size)
	if _, r.err = io.ReadFull(r.from, taken); r.err != nil {
		return nil
	}
	return taken
}

// packed reads an integer in the same format as fieldReader.packed.
func (r *payloadReader) packed() int64 {
	field := fieldReader{left: r.take(1)}
	first := field.fixed(1)
	size := sizeAfter(first)
	if size == 0 {
		return first
	}
	field = fieldReader{left: r.take(size)}
	return field.fixed(size)
}

type eventHeader [headerSize]byte

func readHeader(from io.Reader) (eventHeader, error) {
	var head eventHeader
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return head, err
	}
	if size := head.restSize() + headerSize; size < headerSize || size > maxEventSize {
		return head, fmt.Errorf("expected an event of the binary log, found one of %d bytes", size)
	}
	return head, nil
}

func (h eventHeader) eventType() byte { return h[4] }

// restSize returns the number of bytes after the header.
func (h eventHeader) restSize() int64 { return int64(binary.LittleEndian.Uint32(h[9:])) - headerSize }

func (h eventHeader) readRest(from io.Reader) (BinlogEvent, error) {
	var raw bytes.Buffer // The buffer grows with the bytes received, regardless of the size in the header.
	raw.Write(h[:])
	if _, err := io.CopyN(&raw, from, h.restSize()); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return BinlogEvent{}, err
	}
	return BinlogEvent{raw.Bytes()}, nil
}
