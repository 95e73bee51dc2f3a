// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	releaseimage "github.com/torpor-dev/torpor/hack/release/image"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// certifiedHost is a name in the certificates of all servers of package httptest.
const certifiedHost = "example.com"

// startTLSFront starts a TLS server in front of a proxy of the environment, which serves plain HTTP.
func startTLSFront(t *testing.T, to *interceptingProxy) *httptest.Server {
	t.Helper()
	target, err := url.Parse(to.url)
	testenv.ExpectNoError(t, err)
	silent := log.New(io.Discard, "", 0) // Some clients do not trust it, as intended.
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{ErrorLog: silent, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	front.Config.ErrorLog = silent
	front.StartTLS()
	t.Cleanup(front.Close)
	return front
}

func encodeAuthority(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// image is a folder with the file system of Torpor's image.
type image struct {
	root, entrypoint string
	user             uint32
}

func buildImage(t *testing.T) image {
	t.Helper()
	if id := os.Geteuid(); id != 0 {
		t.Skipf("expected root, because only root can start a program in another root directory, found the user %d", id)
	}
	built, err := releaseimage.Build(testenv.TorporPath(t))
	testenv.ExpectNoError(t, err)
	manifest, err := built.Index.IndexManifest()
	testenv.ExpectNoError(t, err)
	only, err := built.Index.Image(manifest.Manifests[0].Digest)
	testenv.ExpectNoError(t, err)
	config, err := only.ConfigFile()
	testenv.ExpectNoError(t, err)
	i := image{root: t.TempDir(), entrypoint: config.Config.Entrypoint[0]}
	if _, err := fmt.Sscanf(config.Config.User, "%d:%d", &i.user, new(int)); err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(mutate.Extract(only)); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return i
		}
		testenv.ExpectNoError(t, err)
		if header.Typeflag == tar.TypeDir {
			testenv.ExpectNoError(t, os.MkdirAll(filepath.Join(i.root, header.Name), header.FileInfo().Mode()))
			continue
		}
		content, err := io.ReadAll(files)
		testenv.ExpectNoError(t, err)
		i.write(t, header.Name, content, header.FileInfo().Mode())
	}
}

func (i image) write(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(i.root, path), content, mode))
}

// startManager runs the manager in the image, with only its kubeconfig and this environment.
func (i image) startManager(t *testing.T, w *environment, env ...string) *testenv.Process {
	t.Helper()
	kubeconfig, err := os.ReadFile(writeKubeconfig(t, w.hubProxy))
	testenv.ExpectNoError(t, err)
	i.write(t, "kubeconfig", kubeconfig, 0o644)
	args := []string{
		"manager", "--kubeconfig", "/kubeconfig", "--metrics-address", "0", "--probe-address", "0", "--allow-insecure-target-clusters",
	}
	p := testenv.StartProcess(t, i.entrypoint, args, nil, func(c *exec.Cmd) {
		c.Env, c.Dir = env, "/"
		c.SysProcAttr.Chroot, c.SysProcAttr.Credential = i.root, &syscall.Credential{Uid: i.user, Gid: i.user}
	})
	w.startedPIDs[fmt.Sprintf("image %d", len(w.startedPIDs))] = p.PID()
	return p
}

// TestTheImageTrustsAuthorities runs the image with a cloud whose certificate is signed by a private CA. The image
// contains no CA certificates: the program trusts the public CAs, and those that its environment specifies, as
// described in docs/install.md.
func TestTheImageTrustsAuthorities(t *testing.T) {
	t.Parallel()
	i, w := buildImage(t), newEnvironment(t)
	cluster := w.createCluster(t, "private", time.Hour)
	cloud := startTLSFront(t, w.cloudProxy)
	cluster.rerouteSecret(t, "private-aws-creds", "endpoint_url", cloud.URL)
	p := i.startManager(t, w)
	testenv.Eventually(t, "the cloud's certificate is not trusted", func() error {
		ready := meta.FindStatusCondition(cluster.getClusterDeployment(t).Status.Conditions, hivev1.ClusterReadyCondition)
		if ready == nil || ready.Reason != hivev1.CloudUnreachableReason || !strings.Contains(ready.Message, "the certificate of the API is not trusted") {
			return fmt.Errorf("found %v", ready)
		}
		return nil
	})
	p.Stop(t)
	i.write(t, "private.crt", encodeAuthority(cloud), 0o644)
	i.startManager(t, w, "SSL_CERT_FILE=/private.crt")
	cluster.reachPowerState(t, hivev1.PowerStateHibernating)
}

// connectProxy is a proxy like that of a company's network. Only the proxy can resolve the names.
type connectProxy struct {
	*httptest.Server
	mu    sync.Mutex
	leads map[string]string
	asked map[string]int
}

func startConnectProxy(t *testing.T, leads map[string]string) *connectProxy {
	t.Helper()
	p := &connectProxy{leads: leads, asked: map[string]int{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP implements http.Handler.
func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.Host]++
	to := p.leads[r.Host]
	p.mu.Unlock()
	if r.Method != http.MethodConnect || to == "" {
		http.Error(w, "expected to connect to a known name", http.StatusForbidden)
		return
	}
	server, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		defer func() { _ = client.Close() }()
		_, _ = io.Copy(client, server)
	}()
	_, _ = io.Copy(server, client)
}

func (p *connectProxy) countAsked(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[host]
}

// TestTheProxyOfTheEnvironmentIsUsed has a cloud and a cluster with names that only a proxy can resolve.
func TestTheProxyOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	cluster := w.createCluster(t, "proxied", time.Hour)
	cloud, api := startTLSFront(t, w.cloudProxy), startTLSFront(t, cluster.proxy)
	const cloudHost, apiHost = certifiedHost + ":443", certifiedHost + ":6443"
	proxy := startConnectProxy(t, map[string]string{cloudHost: cloud.Listener.Addr().String(), apiHost: api.Listener.Addr().String()})
	kubeconfig := buildKubeconfig(cluster.proxy)
	kubeconfig.Clusters["proxy"] = &clientcmdapi.Cluster{Server: "https://" + apiHost, CertificateAuthorityData: encodeAuthority(api)}
	text, err := clientcmd.Write(kubeconfig)
	testenv.ExpectNoError(t, err)
	cluster.rerouteSecret(t, "proxied-admin-kubeconfig", "kubeconfig", string(text))
	cluster.rerouteSecret(t, "proxied-aws-creds", "endpoint_url", "https://"+certifiedHost)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	testenv.ExpectNoError(t, os.WriteFile(authority, encodeAuthority(cloud), 0o600))
	w.startManagerIn(t, []string{"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE=" + authority})
	cluster.reachPowerState(t, hivev1.PowerStateHibernating)
	cluster.reachPowerState(t, hivev1.PowerStateRunning)
	for _, host := range []string{cloudHost, apiHost} {
		if proxy.countAsked(host) == 0 {
			t.Errorf("expected the proxy to be asked for %s, found nothing", host)
		}
	}
}
