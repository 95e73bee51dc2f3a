// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/local/pki"
)

// targetDouble answers for the API servers of all clusters of a fleet: it is always up, and its nodes always report.
type targetDouble struct {
	kubeconfig []byte
	// dials counts connections, requests what was asked.
	dials, requests atomic.Int64
	nodes           []byte
}

const fleetHeaderTimeout = 10 * time.Second

// startTargetDouble serves until ctx ends, with its certificates in a folder.
func startTargetDouble(ctx context.Context, dir string, machines int) (*targetDouble, error) {
	authority, err := pki.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	if err := authority.IssueCertificate("server", pki.CertificateSubject{Name: "target", Hosts: []string{"127.0.0.1"}}); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(authority.FilePath("server.crt"), authority.FilePath("server.key"))
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	file := authority.FilePath("admin.kubeconfig")
	if err := authority.WriteBootstrapKubeconfig(file, "token", "https://"+l.Addr().String()); err != nil {
		return nil, err
	}
	d := &targetDouble{}
	if d.kubeconfig, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	var nodes corev1.NodeList
	for i := range machines {
		nodes.Items = append(nodes.Items, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), UID: "uid"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	if d.nodes, err = json.Marshal(nodes); err != nil {
		return nil, fmt.Errorf("encode nodes: %w", err)
	}
	server := &http.Server{
		Handler: d.handler(machines), ReadHeaderTimeout: fleetHeaderTimeout, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				d.dials.Add(1)
			}
		},
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(l, "", "") }()
	return d, nil
}

func (d *targetDouble) handler(machines int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("/api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(d.nodes) })
	mux.HandleFunc("/apis/certificates.k8s.io/v1/certificatesigningrequests", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	mux.HandleFunc("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", func(w http.ResponseWriter, _ *http.Request) {
		var leases coordinationv1.LeaseList
		for i := range machines {
			leases.Items = append(leases.Items, coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())},
			})
		}
		// A client that has left needs no answer.
		_ = json.NewEncoder(w).Encode(leases)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		mux.ServeHTTP(w, r)
	})
}
