// SPDX-License-Identifier: Apache-2.0

// Package loopback listens only on addresses that cannot be reached from other machines, because the simulated
// components serve without authentication, and some of them run commands.
package loopback

import (
	"context"
	"fmt"
	"net"
)

// Listen listens on a TCP port of a loopback address: an IP address in 127.0.0.0/8, or ::1. It refuses host names,
// because they may resolve to any address.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("expected HOST:PORT to listen on, found %q: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("expected a loopback address to listen on, found %q; set --address to one of 127.0.0.0/8", host)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}
