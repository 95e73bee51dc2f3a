// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	firstNetwork = 77
	lastNetwork  = 126
	// guard is the address and port that a cloud holds in its network as long as it runs.
	guard = ".255.254:4242"
)

var errNoNetwork = errors.New("expected a free loopback network between 127.77 and 127.126, found them all held by other clouds; stop one")

// reserveNetwork finds a loopback network that no other cloud of this machine uses, and holds it.
// A folder keeps its network, because its machines keep their addresses.
func reserveNetwork(ctx context.Context, dir string) (string, func(), error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("make cloud folder: %w", err)
	}
	file := filepath.Join(dir, "network")
	candidates := make([]string, 0, lastNetwork-firstNetwork+1)
	for i := firstNetwork; i <= lastNetwork; i++ {
		candidates = append(candidates, fmt.Sprintf("127.%d", i))
	}
	if kept, err := os.ReadFile(file); err == nil {
		candidates = []string{strings.TrimSpace(string(kept))}
	}
	for _, network := range candidates {
		// The listener is the lock on the network, and the kernel releases it with the process.
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", network+guard)
		if err != nil {
			continue
		}
		if err := os.WriteFile(file, []byte(network+"\n"), 0o600); err != nil {
			_ = l.Close()
			return "", nil, fmt.Errorf("keep network: %w", err)
		}
		return network, func() { _ = l.Close() }, nil
	}
	return "", nil, errNoNetwork
}
