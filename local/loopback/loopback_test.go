// SPDX-License-Identifier: Apache-2.0

package loopback

import (
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
