// SPDX-License-Identifier: Apache-2.0

package env

import (
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// StartKubelet runs a kubelet that serves logs of Pods and forwards their ports, and returns the name of its node. It
// forwards the ports of a Pod to the same ports of this machine. The API server trusts it, because the cluster's
// authority has signed its certificate. The handler gets namespace, pod and container as path values.
func (e *Environment) StartKubelet(t testing.TB, logs http.Handler) string {
	t.Helper()
	pki := filepath.Join(filepath.Dir(e.KubeconfigPath(t)), "pki")
	authority, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	ExpectNoError(t, err)
	now := clock.RealClock{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(nil, template, authority.Leaf, authority.Leaf.PublicKey, authority.PrivateKey)
	ExpectNoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", logs)
	mux.HandleFunc("/portForward/{namespace}/{pod}", forwardPorts)
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: authority.PrivateKey}}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	e.ExpectCreated(t, node)
	address, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("expected a port of TCP, found %T", server.Listener.Addr())
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.AddrPort().Port())
	ExpectNoError(t, e.Client.SubResource("status").Update(t.Context(), node))
	return node.Name
}
