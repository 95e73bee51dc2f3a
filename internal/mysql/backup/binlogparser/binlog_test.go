// SPDX-License-Identifier: Apache-2.0

package binlogparser_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// event builds an event with a header.
func event(kind byte, body string) []byte {
	raw := make([]byte, 19)
	raw[4] = kind
	binary.LittleEndian.PutUint32(raw[9:], uint32(len(raw)+len(body)))
	return slices.Concat(raw, []byte(body))
}

const uuid = "\x3e\x11\xfa\x47\x71\xca\x11\xe1\x9e\x33\xc8\x0a\xa9\x42\x95\x62"

func TestReadEvent(t *testing.T) {
	whole := event(2, strings.Repeat("x", 100))
	for name, tt := range map[string]struct {
		text []byte
		want error
	}{
		"a complete event: read":                                        {whole, nil},
		"an empty file: end of file":                                    {nil, io.EOF},
		"a truncated header: unexpected end":                            {whole[:7], io.ErrUnexpectedEOF},
		"a header without a body: unexpected end":                       {whole[:19], io.ErrUnexpectedEOF},
		"a truncated body: unexpected end":                              {whole[:50], io.ErrUnexpectedEOF},
		"a header that declares more bytes than follow: unexpected end": {append(bytes.Clone(whole[:9]), 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := binlogparser.ReadEvent(bytes.NewReader(tt.text))
			if !errors.Is(err, tt.want) || err == nil && !bytes.Equal(found.Raw, whole) {
				t.Errorf("expected %v, found %v and %q", tt.want, err, found.Raw)
			}
		})
	}
	if _, err := binlogparser.ReadEvent(bytes.NewReader(make([]byte, 19))); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("expected an event of 0 bytes to be refused, found %v", err)
	}
}

func TestParseTransactionHead(t *testing.T) {
	// This is 2026-11-20T12:00:00.5Z in microseconds.
	moment := time.Date(2026, 11, 20, 12, 0, 0, 5e8, time.UTC)
	at := string(binary.LittleEndian.AppendUint64(nil, uint64(moment.UnixMicro()))[:7])
	replicated := string(binary.LittleEndian.AppendUint64(nil, uint64(moment.Add(time.Hour).UnixMicro())|1<<55)[:7]) + at
	number, clock := "\x07\x00\x00\x00\x00\x00\x00\x00", strings.Repeat("\x02", 17)
	for name, tt := range map[string]struct {
		body string
		size int64
		err  string
	}{
		"a GTID event written by a primary: parsed":                   {"\x00" + uuid + number + clock + at + "\xc8", 200, ""},
		"a GTID event written by a replica: parsed":                   {"\x00" + uuid + number + clock + replicated + "\xfc\x00\x10", 4096, ""},
		"a transaction length of eight bytes: parsed":                 {"\x00" + uuid + number + clock + at + "\xfe\x00\x00\x00\x00\x01\x00\x00\x00", 1 << 32, ""},
		"a GTID event that is too short: an error":                    {"\x00" + uuid, 0, "shorter"},
		"a transaction that is shorter than its GTID event: an error": {"\x00" + uuid + number + clock + at + "\x07", 0, "fewer than its first event"},
	} {
		t.Run(name, func(t *testing.T) {
			head, err := binlogparser.BinlogEvent{Raw: event(33, tt.body)}.ParseTransactionHead()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("expected %q, found %v", tt.err, err)
				}
				return
			}
			if err != nil || head.GTID.String() != "3e11fa47-71ca-11e1-9e33-c80aa9429562:7" || !head.Committed.Equal(moment) || head.Size != tt.size {
				t.Errorf("expected number 7 at %s with %d bytes, found %+v, %v", moment, tt.size, head, err)
			}
		})
	}
}

// FuzzParseTransactionHead searches for events that crash the reader, because objects in a bucket may be damaged.
func FuzzParseTransactionHead(f *testing.F) {
	f.Add(byte(33), []byte("\x00"+uuid))
	f.Add(byte(42), []byte("\x02\x78\x00\x00\x02\x02\x25\xdc"))
	f.Add(byte(2), []byte{})
	f.Fuzz(func(_ *testing.T, kind byte, body []byte) {
		e := binlogparser.BinlogEvent{Raw: event(kind, string(body))}
		_, _ = e.ParseTransactionHead()
		_ = e.QueryText(true)
		_ = e.IsCompatible(e)
	})
}

func TestSegmentHeader(t *testing.T) {
	set, err := gtid.Parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:label:3")
	if err != nil {
		t.Fatal(err)
	}
	want := binlogparser.SegmentHeader{Previous: set, First: time.Unix(1, 0).UTC(), Source: "s"}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	found, err := binlogparser.ReadSegmentHeader(io.MultiReader(bytes.NewReader(text), strings.NewReader("more")))
	if err != nil || !found.Previous.Equal(set) || !found.GTIDs.IsEmpty() || found.First != want.First || found.Source != "s" {
		t.Errorf("expected %+v, found %+v, %v", want, found, err)
	}
	for _, bad := range []string{"", "PK", strings.Repeat("x", 100), string(text[:20])} {
		if _, err := binlogparser.ReadSegmentHeader(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: expected an error, found none", bad)
		}
	}
}
