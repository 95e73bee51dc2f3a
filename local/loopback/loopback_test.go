// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestOnlyLoopbackAddressesAreListenedOn(t *testing.T) {
	for address, refused := range map[string]string{
		"127.0.0.1:0":      "",
		"127.77.3.1:0":     "",
		"0.0.0.0:0":        "expected a loopback address",
		":0":               "expected a loopback address",
		"[::]:0":           "expected a loopback address",
		"localhost:0":      "expected a loopback address",
		"192.0.2.1:0":      "expected a loopback address",
		"127.0.0.1":        "expected HOST:PORT",
		"127.0.0.1:999999": "listen on",
	} {
		t.Run(address, func(t *testing.T) {
			listener, err := Listen(t.Context(), address)
			if listener != nil {
				defer func() { _ = listener.Close() }()
			}
			switch {
			case refused == "" && err != nil:
				t.Errorf("expected to listen, found: %v", err)
			case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
				t.Errorf("expected an error with %q, found: %v", refused, err)
			}
		})
	}
}

func TestReservedPortsAreUniqueAndNotUsedByConnections(t *testing.T) {
	ctx, release := context.WithCancel(t.Context())
	seen := map[int]bool{}
	for range 200 {
		port, err := ReservePort(ctx, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < firstReserved || port > lastReserved {
			t.Fatalf("expected a port of %d to %d that was not given yet, found %d", firstReserved, lastReserved, port)
		}
		seen[port] = true
	}
	for port := range seen {
		if err := reservePort(ctx, "127.0.0.1", port); err == nil {
			t.Fatalf("expected port %d to be reserved, found it given twice", port)
		}
	}
	release()
	for port := range seen { // The reservations end shortly after their context.
		for reservePort(t.Context(), "127.0.0.1", port) != nil {
			if t.Context().Err() != nil {
				t.Fatalf("expected port %d to be free after its reservation, found it taken", port)
			}
			runtime.Gosched()
		}
	}
}

func TestReservePortSkipsPortsInUse(t *testing.T) {
	port, err := ReservePort(t.Context(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	taken, err := Listen(t.Context(), net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("expected the reserved port to be free, found: %v", err)
	}
	defer func() { _ = taken.Close() }()
	if err := reservePort(t.Context(), "127.0.0.1", port); err == nil {
		t.Errorf("expected port %d to be in use, found it reserved", port)
	}
}
