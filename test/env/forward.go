// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"io"
	"net"
	"sync"
)

// ForwardConnection connects to a server, and copies in both directions until one of the connections or ctx ends. It
// closes both connections.
func ForwardConnection(ctx context.Context, from net.Conn, server string) {
	defer func() { _ = from.Close() }() // The connection may be closed already.
	var dialer net.Dialer
	to, err := dialer.DialContext(ctx, "tcp", server)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	var copies sync.WaitGroup
	for _, c := range [][2]net.Conn{{from, to}, {to, from}} {
		copies.Go(func() {
			_, _ = io.Copy(c[0], c[1])        // The copy ends with the connection.
			_, _ = c[0].Close(), c[1].Close() // The close also ends the copy in the other direction.
		})
	}
	copies.Wait()
}
