// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	loopback = "127.0.0.1"
	// reservations is the address on which tests of other modules listen on the ports that they have reserved.
	reservations = "127.127.127.127"
	// The ports are below the range from which Linux takes the ports of outgoing connections (32768 and above by
	// default, net.ipv4.ip_local_port_range). envtest takes ports from that range. There, a connection may be using a
	// port when a server starts to listen, or when the server restarts in a test.
	firstPort, lastPort = 20_000, 32_767
)

// FreeAddress returns an address of the loopback interface on which no process listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ports, err := findPorts(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(loopback, ports[0])
}

// findPorts returns ports of the loopback interface on which no process listens. The search begins at a random port, so
// concurrent tests rarely collide.
func findPorts(ctx context.Context, count int) ([]string, error) {
	var ports []string
	all := lastPort - firstPort + 1
	start := rand.Intn(all)
	var err error
	for i := range all {
		port := strconv.Itoa(firstPort + (start+i)%all)
		if err = tryPort(ctx, port); err == nil {
			ports = append(ports, port)
		}
		if len(ports) == count {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("expected %d free ports between %d and %d on %s, found %d; end other tests: %w", count, firstPort, lastPort, loopback, len(ports), err)
}

func tryPort(ctx context.Context, port string) error {
	for _, host := range []string{reservations, loopback} {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
