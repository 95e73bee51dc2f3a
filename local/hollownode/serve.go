// SPDX-License-Identifier: Apache-2.0

package hollownode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"k8s.io/client-go/util/certificate"
)

var errNoServingCertificate = errors.New("expected a serving certificate, found none yet; its request waits for approval")

// serveHealthz answers /healthz with the serving certificate, so that a client sees whether it was really issued.
// It takes the kubelet's port, or a free one when that is taken.
func serveHealthz(ctx context.Context, address string, manager certificate.Manager) (int32, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(kubeletPort)))
	if err != nil {
		// Another node has the address: the port is in the Node object, so any will do.
		l, err = listen.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	}
	if err != nil {
		return 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: requestLimit, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if current := manager.Current(); current != nil {
				return current, nil
			}
			return nil, errNoServingCertificate
		},
	}}
	go func() { _ = server.ServeTLS(l, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return int32(l.Addr().(*net.TCPAddr).AddrPort().Port()), nil
}
