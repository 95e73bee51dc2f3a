// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"testing"
)

// FuzzReadFrame reads frames of a hostile daemon. Contents and names do not exceed their limits.
func FuzzReadFrame(f *testing.F) {
	writer := &xdrWriter{}
	writer.writeDomain(domain{name: "infra-master-0", id: 7})
	for _, status := range []uint32{statusOK, statusError, 9} {
		var frame xdrWriter
		frame.writeLength(headBytes + len(writer.content))
		for _, word := range []uint32{1, 1, 3, 1, 5, status} {
			frame.writeUint(word)
		}
		f.Add(append(frame.content, writer.content...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, sent []byte) {
		head, content, err := readFrame(bytes.NewReader(sent))
		if err != nil {
			return
		}
		if len(content) > len(sent) || len(content) > maxFrameBytes {
			t.Fatalf("expected at most the sent %d bytes, found %d", len(sent), len(content))
		}
		r, err := answer{status: head.status, content: content}.read()
		if (err == nil) != (head.status == statusOK) {
			t.Fatalf("expected an error unless the status is 0, found %v for %d", err, head.status)
		}
		if err != nil {
			return
		}
		d := r.readDomain()
		if len(d.name) > maxNameBytes || r.err == nil && len(r.rest) >= len(content) {
			t.Errorf("expected a domain from %d bytes, found %+v with %d bytes left", len(content), d, len(r.rest))
		}
	})
}

// FuzzParseURI parses the URI in a Secret. Only a driver, a transport and a host are used.
func FuzzParseURI(f *testing.F) {
	for _, uri := range []string{
		"qemu+tls://host.example.com/system", "qemu+tcp://[::1]:16509/system", "qemu:///system", "qemu+unix:///system?socket=/run/x",
		"qemu+ssh://root@host/system?command=/bin/sh", "test:///default", "://",
	} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		d, err := parseURI(uri)
		again, againErr := parseURI(uri)
		if (err == nil) != (againErr == nil) || err == nil && d.address() != again.address() {
			t.Errorf("%q: expected the same answer twice, found %+v, %v and %+v, %v", uri, d, err, again, againErr)
		}
		if err == nil && d.transport != overTLS && d.transport != overTCP && d.transport != overSocket {
			t.Errorf("%q: expected a known transport, found %q", uri, d.transport)
		}
	})
}
