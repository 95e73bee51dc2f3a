// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"encoding/binary"
	"errors"
)

// errNotLibvirt means that a response does not follow libvirt's protocol.
var errNotLibvirt = errors.New("the response is not a valid libvirt response")

// xdrWriter writes the subset of XDR (RFC 4506) that call arguments need.
type xdrWriter struct{ content []byte }

func (w *xdrWriter) writeUint(n uint32) { w.content = binary.BigEndian.AppendUint32(w.content, n) }

// writeLength writes a length, which has four bytes.
func (w *xdrWriter) writeLength(n int) {
	word := binary.BigEndian.AppendUint64(nil, uint64(max(n, 0)))
	w.content = append(w.content, word[wordBytes:]...)
}

func (w *xdrWriter) writeString(s string) {
	w.writeLength(len(s))
	w.content = append(w.content, s...)
	for len(w.content)%wordBytes != 0 {
		w.content = append(w.content, 0)
	}
}

// writeOptional writes an optional string that is present.
func (w *xdrWriter) writeOptional(s string) {
	w.writeUint(1)
	w.writeString(s)
}

func (w *xdrWriter) writeDomain(d domain) {
	w.writeString(d.name)
	w.content = append(w.content, d.uuid[:]...)
	w.writeUint(d.id)
}

// wordBytes is the unit of all sizes in XDR.
const wordBytes = 4

// xdrReader reads XDR. Lengths come from the server, so each is checked against the remaining bytes and the caller's
// limit. After the first error, all values are zero.
type xdrReader struct {
	rest []byte
	err  error
}

func (r *xdrReader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.rest) {
		r.err = errNotLibvirt
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *xdrReader) readUint() uint32 {
	taken := r.take(wordBytes)
	if taken == nil {
		return 0
	}
	return binary.BigEndian.Uint32(taken)
}

func (r *xdrReader) readString(maxBytes uint32) string {
	length := r.readUint()
	if length > maxBytes {
		r.err = errNotLibvirt
		return ""
	}
	padded := (int(length) + wordBytes - 1) / wordBytes * wordBytes
	taken := r.take(padded)
	if taken == nil {
		return ""
	}
	return string(taken[:length])
}

// readOptional reads an optional string.
func (r *xdrReader) readOptional(maxBytes uint32) string {
	if r.readUint() == 0 {
		return ""
	}
	return r.readString(maxBytes)
}

func (r *xdrReader) readDomain() domain {
	d := domain{name: r.readString(maxNameBytes)}
	copy(d.uuid[:], r.take(len(d.uuid)))
	d.id = r.readUint()
	return d
}
