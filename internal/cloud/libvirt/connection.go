// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

// The header of a frame has seven words: length, program, version, procedure, type, serial number and status
// (https://libvirt.org/kbase/internals/rpc.html).
const (
	headBytes      = 28
	remoteProgram  = 0x20008086
	remoteVersion  = 1
	typeCall       = 0
	typeReply      = 1
	statusOK       = 0
	statusError    = 1
	maxFrameBytes  = 4 << 20
	maxErrorBytes  = 16 << 10
	maxAnswerBytes = 32 << 20 // For all frames of a connection. The domains of a host need far less.
)

var (
	errAnswerTooLarge     = errors.New("the response is larger than allowed")
	errCertificateRefused = errors.New("the daemon rejects the certificate")
	errSilent             = errors.New("the daemon does not respond")
)

// connection is a connection to a daemon. Several calls may be in progress, and the daemon answers them in any order.
type connection struct {
	errorExplainer

	// place identifies the daemon and its driver.
	place   string
	conn    net.Conn
	timeout time.Duration
	// ended is closed when no more frames will be read. failure is the reason, and is set before that.
	ended   chan struct{}
	failure error
	// stopWatching stops watching the context.
	stopWatching func() bool

	mu      sync.Mutex
	serial  uint32
	waiting map[uint32]chan answer
}

// answer is the daemon's response to a call.
type answer struct {
	status  uint32
	content []byte
}

// dial connects to a daemon, authenticates and opens the driver.
func (a *Actuator) dial(ctx context.Context, d daemon) (*connection, error) {
	if err := a.checkEndpoint(d); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, a.options.CallTimeout)
	defer cancel()
	conn, err := a.dialTransport(limited, d)
	if err != nil {
		return nil, err
	}
	c := &connection{
		errorExplainer: a.errorExplainer(d), place: d.driver + " at " + d.address(), conn: conn, timeout: a.options.CallTimeout, ended: make(chan struct{}), waiting: map[uint32]chan answer{},
		stopWatching: context.AfterFunc(ctx, func() { _ = conn.Close() }), // Closing the connection ends all calls.
	}
	go c.readAnswers()
	if err := c.open(limited, d.driver); err != nil {
		c.close()
		return nil, &openingError{driver: d.driver, err: err}
	}
	return c, nil
}

// checkEndpoint checks whether a Secret may refer to a server. A user who may write a Secret must not be able to reach
// servers that only the manager can reach. Such a server may even control machines of other owners without requiring
// credentials.
func (a *Actuator) checkEndpoint(d daemon) error {
	where := uriKey + " of the credentials Secret"
	switch {
	case d.transport == overSocket && a.options.Socket == "":
		return actuator.Errorf(actuator.Other, "%s contains no host, and the manager runs without --libvirt-socket: add a host, or ask the administrator to set the flag", where)
	case d.transport == overSocket:
		return nil
	}
	if err := a.options.Endpoints.CheckHost(d.host); err != nil {
		return actuator.Errorf(actuator.Other, "%s: %.100s: %s", where, d.host, err)
	}
	isListed := a.options.Endpoints.Includes(d.host)
	switch {
	case !isListed && !a.options.Endpoints.IsEmpty():
		return actuator.Errorf(actuator.Other, "%s: expected a server that --allow-endpoints lists, found %.100s: correct it, or ask the administrator to list the server", where, d.host)
	case !isListed && d.transport == overTCP:
		return actuator.Errorf(actuator.Other, "%s: tcp has no authentication, so --allow-endpoints must list %.100s: use tls, or ask the administrator to list the server", where, d.host)
	default:
		return nil
	}
}

func (a *Actuator) dialTransport(ctx context.Context, d daemon) (net.Conn, error) {
	if d.transport == overSocket {
		return new(net.Dialer).DialContext(ctx, "unix", a.options.Socket)
	}
	dialer := &net.Dialer{Control: a.options.Endpoints.ControlDial}
	conn, err := dialer.DialContext(ctx, "tcp", d.address())
	if err != nil || d.transport == overTCP {
		return conn, err
	}
	encrypted := tls.Client(conn, d.tls)
	if err := handshake(ctx, encrypted); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}

// handshake performs the TLS handshake, and reads the byte with which the daemon accepts the client's certificate.
func handshake(ctx context.Context, conn *tls.Conn) error {
	if err := conn.HandshakeContext(ctx); err != nil {
		if said, ok := errors.AsType[*net.OpError](err); ok && said.Op == "remote error" { // The error is a TLS alert.
			return errCertificateRefused
		}
		return fmt.Errorf("TLS: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var verdict [1]byte
	_, err := io.ReadFull(conn, verdict[:])
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || verdict[0] != 1:
		return errCertificateRefused
	default:
		return nil
	}
}

// close closes the connection. Calls in progress fail.
func (c *connection) close() {
	c.stopWatching()
	_ = c.conn.Close()
	<-c.ended
}

// call makes a call and waits for its response.
func (c *connection) call(ctx context.Context, procedure uint32, arguments xdrWriter) (*xdrReader, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errSilent)
	defer cancel()
	answered, err := c.send(ctx, procedure, arguments)
	if err != nil {
		return nil, err
	}
	select {
	case found := <-answered:
		return found.read()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ended:
	}
	select {
	case found := <-answered: // The response arrived before the connection ended.
		return found.read()
	default:
		return nil, c.failure
	}
}

// send writes a call, and returns the channel that receives its response.
func (c *connection) send(ctx context.Context, procedure uint32, arguments xdrWriter) (<-chan answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	var frame xdrWriter
	frame.writeLength(headBytes + len(arguments.content))
	for _, word := range []uint32{remoteProgram, remoteVersion, procedure, typeCall, c.serial, statusOK} {
		frame.writeUint(word)
	}
	answered := make(chan answer, 1) // Buffered, so the sender of the response does not block.
	c.waiting[c.serial] = answered
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // Writing blocks if the daemon has stopped reading.
	defer stop()
	_, err := c.conn.Write(append(frame.content, arguments.content...))
	return answered, err
}

// readAnswers reads until the connection ends. Frames that do not answer a call are dropped, but count against the
// budget.
func (c *connection) readAnswers() {
	defer close(c.ended)
	for left := maxAnswerBytes; ; {
		head, content, err := readFrame(c.conn)
		if left -= headBytes + len(content); err == nil && left < 0 {
			err = errAnswerTooLarge
		}
		if err != nil {
			c.failure = err
			_ = c.conn.Close()
			return
		}
		if head.program == remoteProgram && head.kind == typeReply {
			c.deliver(head.serial, answer{status: head.status, content: content})
		}
	}
}

// deliver passes a response to its call. A second response to the same call is dropped.
func (c *connection) deliver(serial uint32, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting, ok := c.waiting[serial]; ok {
		delete(c.waiting, serial)
		waiting <- a
	}
}

type frameHead struct{ program, kind, serial, status uint32 }

func readFrame(r io.Reader) (frameHead, []byte, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frameHead{}, nil, err
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(head[i*wordBytes:]) }
	length := word(0)
	switch {
	case length < headBytes:
		return frameHead{}, nil, errNotLibvirt
	case length > maxFrameBytes:
		return frameHead{}, nil, errAnswerTooLarge
	}
	content := make([]byte, length-headBytes)
	_, err := io.ReadFull(r, content)
	return frameHead{program: word(1), kind: word(4), serial: word(5), status: word(6)}, content, err
}

// read returns the content of the daemon's response, or the error in it.
func (a answer) read() (*xdrReader, error) {
	r := &xdrReader{rest: a.content}
	if a.status == statusOK {
		return r, nil
	}
	code, _ := r.readUint(), r.readUint() // The second value is the reporting component of libvirt.
	message := r.readOptional(maxErrorBytes)
	if r.err != nil || a.status != statusError {
		return nil, errNotLibvirt
	}
	return nil, &daemonError{code: code, message: message}
}
