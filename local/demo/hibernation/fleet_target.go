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

// targetDouble is a stub that serves as the API server of all clusters of a fleet. It always answers, and the leases of
// its nodes are always current.
type targetDouble struct {
	// kubeconfigs are kubeconfigs of the stub, each for a separate address.
	kubeconfigs []string
	// handshakes counts full TLS handshakes, requests counts requests.
	handshakes, requests atomic.Int64
	nodes                []byte
	pooled               pooledTargets
}

const fleetHeaderTimeout = 10 * time.Second

// startTargetDouble starts a stub that serves at this number of addresses until ctx ends. Its certificates are in
// dir.
func startTargetDouble(ctx context.Context, dir string, machines, addresses int) (*targetDouble, error) {
	authority, err := pki.OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	d := &targetDouble{pooled: pooledTargets{checks: map[string]*healthCheckDouble{}}}
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
	for i := range addresses {
		if err := d.serveAt(ctx, authority, fmt.Sprintf("server-%d", i), machines); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// serveAt starts a server at another address, with a separate certificate.
func (d *targetDouble) serveAt(ctx context.Context, authority *pki.CertificateAuthority, name string, machines int) error {
	if err := authority.IssueCertificate(name, pki.CertificateSubject{Name: name, Hosts: []string{"127.0.0.1"}}); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(authority.FilePath(name+".crt"), authority.FilePath(name+".key"))
	if err != nil {
		return fmt.Errorf("load the certificate: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	file := authority.FilePath(name + ".kubeconfig")
	if err := authority.WriteBootstrapKubeconfig(file, "token", "https://"+l.Addr().String()); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	d.kubeconfigs = append(d.kubeconfigs, string(kubeconfig))
	server := &http.Server{
		Handler: d.handler(machines), ReadHeaderTimeout: fleetHeaderTimeout,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
			VerifyConnection: func(tls.ConnectionState) error {
				d.handshakes.Add(1)
				return nil
			},
		},
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(l, "", "") }()
	return nil
}

// kubeconfigOf returns the kubeconfig of a cluster.
func (d *targetDouble) kubeconfigOf(cluster int) string {
	return d.kubeconfigs[cluster%len(d.kubeconfigs)]
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
		// A client that has disconnected needs no response.
		_ = json.NewEncoder(w).Encode(leases)
	})
	d.pooled.addRoutes(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		mux.ServeHTTP(w, r)
	})
}
