// SPDX-License-Identifier: Apache-2.0

// Package binlogparser reads MySQL's binary logs event by event. It parses the boundaries of transactions, their GTIDs
// and their commit times. It does no I/O except with its readers and writers.
package binlogparser

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// FileMagic is the beginning of every binary log file.
const FileMagic = "\xfebin"

const (
	headerSize = 19
	// checksumSize is the length of the checksum at the end of every event of a server with binlog_checksum.
	checksumSize = 4
	// maxEventSize is greater than the largest possible max_allowed_packet.
	maxEventSize = 1<<30 + 1<<20
)

// These are the types of events that this package handles.
const (
	QueryEvent     = 2
	FormatEvent    = 15
	anonymousEvent = 34
	gtidEvent      = 33
	taggedEvent    = 42
)

// BinlogEvent is one event in its stored form.
type BinlogEvent struct{ Raw []byte }

// EventType returns the type code of the event.
func (e BinlogEvent) EventType() byte { return e.Raw[4] }

// ReadEvent reads one event. It returns io.EOF if the reader ends before the event, and io.ErrUnexpectedEOF if the
// reader ends within the event.
func ReadEvent(from io.Reader) (BinlogEvent, error) {
	head, err := readHeader(from)
	if err != nil {
		return BinlogEvent{}, err
	}
	return head.readRest(from)
}

// TransactionHead holds the fields of the first event of a transaction.
type TransactionHead struct {
	// GTID is a set with one transaction.
	GTID gtid.Set
	// Committed is the time of the commit on the server to which the client wrote.
	Committed time.Time
	// Size is the size of the whole transaction in the binary log, in bytes.
	Size int64
}

// BeginsTransaction reports whether the event is the first of a transaction.
func (e BinlogEvent) BeginsTransaction() bool {
	t := e.EventType()
	return t == gtidEvent || t == taggedEvent || t == anonymousEvent
}

// ParseTransactionHead reads the first event of a transaction.
func (e BinlogEvent) ParseTransactionHead() (TransactionHead, error) {
	var head TransactionHead
	var err error
	body := fieldReader{left: e.Raw[headerSize:]}
	switch e.EventType() {
	case gtidEvent:
		head, err = body.readHead()
	case taggedEvent:
		head, err = body.readTaggedHead()
	default:
		err = fmt.Errorf("expected a transaction with a GTID, found one without; set gtid_mode to ON")
	}
	if body.short {
		err = errors.New("expected the number, time and size of a transaction, found a shorter event")
	}
	if err == nil && head.Size < int64(len(e.Raw)) {
		err = fmt.Errorf("expected the size of a transaction, found %d bytes, fewer than its first event has", head.Size)
	}
	return head, err
}

// fieldReader reads fields from the body of an event.
type fieldReader struct {
	left  []byte
	short bool
}

func (r *fieldReader) take(size int64) []byte {
	if size < 0 || size > int64(len(r.left)) {
		r.short, r.left = true, nil
		return make([]byte, uuidSize) // No caller accesses more bytes of a missing field.
	}
	taken := r.left[:size]
	r.left = r.left[size:]
	return taken
}

// sub returns a reader for the next bytes.
func (r *fieldReader) sub(size int64) fieldReader {
	if size > int64(len(r.left)) {
		r.short, r.left = true, nil
		return fieldReader{short: true}
	}
	return fieldReader{left: r.take(size)}
}

// fixed reads an integer of a fixed size.
func (r *fieldReader) fixed(size int64) int64 {
	var value int64
	for i, b := range r.take(size)[:size] {
		value |= int64(b) << (8 * i)
	}
	return value
}

// packed reads an integer whose length is encoded in its first byte, as in MySQL's network protocol.
func (r *fieldReader) packed() int64 {
	first := r.fixed(1)
	if size := sizeAfter(first); size > 0 {
		return r.fixed(size)
	}
	return first
}

// sizeAfter returns the number of bytes of a packed integer after its first byte. It returns 0 if the first byte is the
// integer itself.
func sizeAfter(first int64) int64 {
	const two, three, eight = 252, 253, 254
	switch first {
	case two:
		return 2
	case three:
		return 3
	case eight:
		return 8
	default:
		return 0
	}
}

const (
	uuidSize      = 16
	timestampSize = 7
	// originalFollows is the bit of the commit timestamp that is set if the original commit timestamp follows.
	originalFollows = 1 << 55
)

func (r *fieldReader) readHead() (TransactionHead, error) {
	r.take(1) // These are the flags.
	uuid, number := r.take(uuidSize), r.fixed(8)
	r.take(1 + 2*8) // This is the logical clock.
	committed := r.fixed(timestampSize)
	if committed&originalFollows != 0 {
		committed = r.fixed(timestampSize)
	}
	return newHead(uuid, "", number, committed, r.packed())
}

// Field numbers of a tagged event. Some fields may be missing.
const (
	flagsField = iota
	uuidField
	numberField
	tagField
	lastCommittedField
	sequenceField
	committedField
	originalField
	sizeField
)

// readTaggedHead reads MySQL's format of serialized messages: version, size and the last field that may not be
// ignored, followed by the number and value of each field.
func (r *fieldReader) readTaggedHead() (TransactionHead, error) {
	for range 3 {
		r.variable()
	}
	var uuid [uuidSize]byte
	var tag string
	var number, committed, size int64
	for !r.short && size == 0 {
		switch field := r.variable(); field {
		case flagsField, lastCommittedField, sequenceField:
			r.variable()
		case uuidField:
			for i := range uuid {
				uuid[i] = byte(r.variable() & 0xff)
			}
		case numberField:
			number = r.variable() >> 1 // The lowest bit is the sign.
		case tagField:
			tag = string(r.take(r.variable()))
		case committedField, originalField:
			committed = r.variable()
		case sizeField:
			size = r.variable()
		default:
			return TransactionHead{}, fmt.Errorf("expected the size of a transaction, found field %d", field)
		}
	}
	return newHead(uuid[:], tag, number, committed, size)
}

// variable reads an integer whose length is encoded in its first byte: the number of trailing one bits, plus one.
func (r *fieldReader) variable() int64 {
	if len(r.left) == 0 {
		r.short = true
		return 0
	}
	size := bits.TrailingZeros8(^r.left[0]) + 1
	if size > 8 { // With nine bytes, the first byte contains no bits of the value.
		r.take(1)
		return r.fixed(8)
	}
	return r.fixed(int64(size)) >> size
}

func newHead(uuid []byte, tag string, number, committed, size int64) (TransactionHead, error) {
	text := fmt.Sprintf("%x-%x-%x-%x-%x:", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
	if tag != "" {
		text += tag + ":"
	}
	set, err := gtid.Parse(fmt.Sprintf("%s%d", text, number))
	return TransactionHead{GTID: set, Committed: time.UnixMicro(committed).UTC(), Size: size}, err
}

// HasChecksums reports whether the events of a file end with checksums. The receiver is the FormatEvent of the
// file.
func (e BinlogEvent) HasChecksums() bool {
	return len(e.Raw) > headerSize+checksumSize && e.Raw[len(e.Raw)-checksumSize-1] == 1
}

// versionSize is the size of the binlog version and the server version at the beginning of a FormatEvent.
const versionSize = 2 + 50

// IsCompatible reports whether events that follow either of the two FormatEvents may be stored in one file.
func (e BinlogEvent) IsCompatible(other BinlogEvent) bool {
	version := func(of BinlogEvent) []byte { return of.Raw[headerSize:min(len(of.Raw), headerSize+versionSize)] }
	return bytes.Equal(version(e), version(other)) && e.HasChecksums() == other.HasChecksums()
}

// QueryText returns the statement of a QueryEvent.
func (e BinlogEvent) QueryText(checksummed bool) string { return e.ParseStatement(checksummed).Text }

func trimChecksum(text []byte, checksummed bool) []byte {
	if checksummed {
		return text[:max(0, len(text)-checksumSize)]
	}
	return text
}
