// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"net"
	"testing"
)

// FreeAddress returns a loopback address, host:port, on which nothing listens at the moment.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return freeAddress(t, "127.0.0.1")
}

func freeAddress(t testing.TB, ip string) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(context.WithoutCancel(t.Context()), "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	// The port is free until the caller listens on it. Should another process take it meanwhile, the caller fails to listen.
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
