// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"net"
	"strconv"
	"syscall"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestPeerSocketIsThatOfTheConnection opens two connections from the same port, as the kernel does on a busy
// machine. If they were confused, a connection of a replica would pass through a cut.
func TestPeerSocketIsThatOfTheConnection(t *testing.T) {
	t.Parallel()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
		if err != nil {
			return err
		}
		return failed
	}}
	// If the kernel chose the port, another program's connection might use it when the second connection is opened.
	local, err := net.ResolveTCPAddr("tcp4", testenv.FreeAddress(t))
	testenv.ExpectNoError(t, err)
	dialer.LocalAddr = local
	opened, accepted := make([]net.Conn, 2), make([]net.Conn, 2)
	for i := range opened {
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		testenv.ExpectNoError(t, err)
		t.Cleanup(func() { _ = listener.Close() }) // No more connections are opened.
		opened[i], err = dialer.DialContext(t.Context(), "tcp4", listener.Addr().String())
		testenv.ExpectNoError(t, err)
		t.Cleanup(func() { _ = opened[i].Close() }) // Nothing was sent.
		accepted[i], err = listener.Accept()
		testenv.ExpectNoError(t, err)
		t.Cleanup(func() { _ = accepted[i].Close() }) // Nothing was sent.
	}
	for i, conn := range opened {
		if found, expected := findPeerSocket(accepted[i]), inodeOf(t, conn); found != expected {
			t.Errorf("expected the socket %s of the connection from %s to %s, found %q", expected, conn.LocalAddr(), conn.RemoteAddr(), found)
		}
	}
}

func inodeOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	testenv.ExpectNoError(t, err)
	var stat syscall.Stat_t
	var failed error
	testenv.ExpectNoError(t, raw.Control(func(fd uintptr) { failed = syscall.Fstat(int(fd), &stat) }))
	testenv.ExpectNoError(t, failed)
	return strconv.FormatUint(stat.Ino, 10)
}
