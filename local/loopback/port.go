// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Reserved ports are below the range of ports for outgoing connections in Linux (by default 32768 and above,
// net.ipv4.ip_local_port_range), so that no connection can use such a port before its server starts to listen, or
// listens again.
const (
	firstReserved = 20_000
	lastReserved  = 32_767
)

// reservations is the address at which a process listens on a port in order to reserve it. The kernel releases the
// reservation when the process ends.
const reservations = "127.127.127.127"

// ReservePort finds a free port of the host, for a program that cannot choose and report a free port. The host is an IP
// address of this machine. No other caller gets the same port before ctx ends.
func ReservePort(ctx context.Context, host string) (int, error) {
	count := lastReserved - firstReserved + 1
	start := rand.Intn(count)
	var err error
	for i := range count {
		port := firstReserved + (start+i)%count
		if err = reservePort(ctx, host, port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("expected a free port between %d and %d on %s, found none; end other programs: %w", firstReserved, lastReserved, host, err)
}

func reservePort(ctx context.Context, host string, port int) error {
	var listen net.ListenConfig
	reservation, err := listen.Listen(ctx, "tcp", net.JoinHostPort(reservations, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("reserve port %d: %w", port, err)
	}
	l, err := listen.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		_ = reservation.Close()
		return fmt.Errorf("try port %d: %w", port, err)
	}
	_ = l.Close() // The caller listens on the port next.
	context.AfterFunc(ctx, func() { _ = reservation.Close() })
	return nil
}
