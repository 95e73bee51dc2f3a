// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"net"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	// These ports are below the range that Linux uses for outgoing connections (32768 and more by default,
	// net.ipv4.ip_local_port_range), so that no connection occupies such a port when a server starts or restarts.
	firstFreePort, lastFreePort = 20_000, 32_767
	// portReservations is the address on which a test listens on each port that it has reserved, so that no other
	// test gets the port. The programs of the module local do the same.
	portReservations = "127.127.127.127"
)

// FreeAddress returns a loopback address, as host:port, on which no program listens. No other test gets this address
// before the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return freeAddress(t, "127.0.0.1")
}

func freeAddress(t testing.TB, ip string) string {
	t.Helper()
	count := lastFreePort - firstFreePort + 1
	start := rand.Intn(count)
	var err error
	for i := range count {
		port := strconv.Itoa(firstFreePort + (start+i)%count)
		var reservation net.Listener
		if reservation, err = reservePort(context.WithoutCancel(t.Context()), ip, port); err == nil {
			t.Cleanup(func() { _ = reservation.Close() })
			return net.JoinHostPort(ip, port)
		}
	}
	t.Fatalf("expected a free port between %d and %d on %s, found none; end other tests: %v", firstFreePort, lastFreePort, ip, err)
	return ""
}

func reservePort(ctx context.Context, ip, port string) (net.Listener, error) {
	var config net.ListenConfig
	reservation, err := config.Listen(ctx, "tcp", net.JoinHostPort(portReservations, port))
	if err != nil {
		return nil, err
	}
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(ip, port))
	if err != nil {
		_ = reservation.Close()
		return nil, err
	}
	return reservation, l.Close()
}
