// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	"github.com/torpor-dev/torpor/internal/httpguard"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// Procedures that only tests call.
	procDomainDefine, procDomainSuspend, procSetMetadata = 11, 34, 264
	// nobody is the user of the daemon if the tests run as root, because a root daemon would write below /run and
	// /var.
	nobody = 65534
)

// realDaemon is a real libvirtd with libvirt's own test driver, which keeps the states of domains in memory. The
// protocol, TLS and all answers are real, but no guest runs.
type realDaemon struct {
	actuator  *Actuator
	authority testAuthority
	address   string
	secret    map[string][]byte
	// keeper is a connection that stays open, because the driver drops its domains with its last connection.
	keeper *connection
	// isDown makes the relay close every connection.
	isDown   atomic.Bool
	clusters atomic.Int32
}

func startLibvirtd(t *testing.T) *realDaemon {
	t.Helper()
	tree := os.Getenv("TORPOR_LIBVIRT")
	if _, err := os.Stat(filepath.Join(tree, "usr/sbin/libvirtd")); tree == "" || err != nil {
		t.Skipf("no real libvirtd: TORPOR_LIBVIRT is %q and names no folder with usr/sbin/libvirtd: run make e2e-clouds on Debian", tree)
	}
	dir := t.TempDir()
	listen := testenv.FreeAddress(t)
	_, port, err := net.SplitHostPort(listen)
	testenv.ExpectNoError(t, err)
	authority := newTestAuthority(t)
	certificate, key := authority.issue(t, "daemon")
	for name, content := range map[string][]byte{
		"ca.pem": authority.pem, "cert.pem": certificate, "key.pem": key,
		"libvirtd.conf": []byte(strings.ReplaceAll(`
listen_tls = 1
listen_tcp = 0
listen_addr = "127.0.0.1"
tls_port = "`+port+`"
auth_tls = "none"
unix_sock_dir = "DIR"
key_file = "DIR/key.pem"
cert_file = "DIR/cert.pem"
ca_file = "DIR/ca.pem"
host_uuid = "7f3c8a52-6a0b-4a3a-9d5e-0c6f1f6b2a11"
log_outputs = "3:stderr"
`, "DIR", dir)),
	} {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	runLibvirtd(t, tree, dir)
	endpoints, err := httpguard.ParseEndpoints([]string{"127.0.0.1"})
	testenv.ExpectNoError(t, err)
	d := &realDaemon{actuator: New(Options{Endpoints: endpoints}), authority: authority, address: listen}
	d.secret = d.credentials(t, authority, "torpor")
	own, err := readCredentials(d.secret)
	testenv.ExpectNoError(t, err)
	testenv.Eventually(t, "libvirtd accepts a client", func() error {
		d.keeper, err = d.actuator.dial(context.WithoutCancel(t.Context()), own)
		return err
	})
	t.Cleanup(d.keeper.close)
	d.secret[uriKey] = []byte("test+tls://" + d.startRelay(t) + "/default")
	return d
}

// runLibvirtd runs the daemon with its own libraries and without other drivers.
func runLibvirtd(t *testing.T, tree, dir string) {
	t.Helper()
	libraries := filepath.Join(tree, "lib/x86_64-linux-gnu") + ":" + filepath.Join(tree, "usr/lib/x86_64-linux-gnu")
	args := []string{"--library-path", libraries, filepath.Join(tree, "usr/sbin/libvirtd"), "--listen", "--config", filepath.Join(dir, "libvirtd.conf"), "--pid-file", filepath.Join(dir, "pid")}
	env := []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "XDG_CACHE_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "LIBVIRT_DRIVER_DIR=" + filepath.Join(dir, "none")}
	testenv.StartProcess(t, filepath.Join(tree, "lib64/ld-linux-x86-64.so.2"), args, env, func(cmd *exec.Cmd) {
		if os.Geteuid() != 0 {
			return
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		testenv.ExpectNoError(t, filepath.WalkDir(filepath.Dir(dir), func(path string, _ os.DirEntry, _ error) error { return os.Chown(path, nobody, nobody) }))
	})
}

// startRelay returns an address that forwards to the daemon unless isDown is set.
func (d *realDaemon) startRelay(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.ExpectNoError(t, err)
	var relaying sync.WaitGroup
	relaying.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // The test has ended.
			}
			relaying.Go(func() { d.relay(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		relaying.Wait()
	})
	return listener.Addr().String()
}

func (d *realDaemon) relay(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", d.address)
	if err != nil || d.isDown.Load() {
		return
	}
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

func (d *realDaemon) credentials(t *testing.T, by testAuthority, client string) map[string][]byte {
	t.Helper()
	certificate, key := by.issue(t, client)
	return map[string][]byte{uriKey: []byte("test+tls://" + d.address + "/default"), authorityKey: d.authority.pem, certificateKey: certificate, privateKeyKey: key}
}

// testAuthority signs the certificates of daemons and clients.
type testAuthority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newTestAuthority(t *testing.T) testAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testenv.ExpectNoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testenv.ExpectNoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	testenv.ExpectNoError(t, err)
	return testAuthority{certificate: certificate, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a testAuthority) issue(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testenv.ExpectNoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, own.Public(), a.key)
	testenv.ExpectNoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	testenv.ExpectNoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// realCluster is a cluster with domains of a real daemon.
type realCluster struct {
	*realDaemon
	infraID string
}

func (d *realDaemon) newCluster() realCluster {
	return realCluster{realDaemon: d, infraID: "sleepy" + strings.Repeat("-x", int(d.clusters.Add(1)))}
}

func (c realCluster) Actuator() actuator.Actuator { return c.actuator }
func (c realCluster) Target() actuator.Target {
	return actuator.Target{InfraID: c.infraID, Credentials: maps.Clone(c.secret)}
}
func (realCluster) TakesOrdersOneByOne() {}

// Settle returns at once, because the driver's guests turn off immediately.
func (realCluster) Settle(*testing.T) {}

// Fail closes connections. A real daemon cannot be made to fail in another way.
func (c realCluster) Fail(t *testing.T, class actuator.ErrorClass, _ actuatortest.Operation, ids ...string) bool {
	t.Helper()
	if class != actuator.Unreachable || len(ids) > 0 {
		return false
	}
	c.isDown.Store(true)
	t.Cleanup(func() { c.isDown.Store(false) })
	return true
}

// Create defines domains and starts them. Half of them have the cluster's name as a prefix, and the others have the
// cluster in their metadata.
func (c realCluster) Create(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	for i := range n {
		name, claim := fmt.Sprintf("%s-worker-%d", c.infraID, i), ""
		if i%2 == 1 {
			name, claim = fmt.Sprintf("machine-of-%s-%d", c.infraID, i), fmt.Sprintf(`<cluster infraID=%q/>`, c.infraID)
		}
		d := c.define(t, name)
		testenv.ExpectNoError(t, c.keeper.create(t.Context(), d))
		if claim != "" {
			c.claim(t, d, claim)
		}
		ids = append(ids, d.String())
	}
	return ids
}

func (c realCluster) define(t *testing.T, name string) domain {
	t.Helper()
	var description xdrWriter
	description.writeString("<domain type='test'><name>" + name + "</name><memory>8192</memory><os><type>hvm</type></os></domain>")
	r, err := c.keeper.call(t.Context(), procDomainDefine, description)
	testenv.ExpectNoError(t, err)
	d := r.readDomain()
	testenv.ExpectNoError(t, r.err)
	return d
}

// claim writes metadata as virsh metadata --config does.
func (c realCluster) claim(t *testing.T, d domain, element string) {
	t.Helper()
	var metadata xdrWriter
	metadata.writeDomain(d)
	metadata.writeUint(metadataElement)
	for _, text := range []string{element, "torpor", metadataNamespace} {
		metadata.writeOptional(text)
	}
	metadata.writeUint(ofDefinition)
	_, err := c.keeper.call(t.Context(), procSetMetadata, metadata)
	testenv.ExpectNoError(t, err)
}

func TestContractAtARealLibvirtd(t *testing.T) {
	daemon := startLibvirtd(t)
	actuatortest.Run(t, func(*testing.T) actuatortest.Cloud { return daemon.newCluster() })
}

func TestRealLibvirtdAuthenticatesClients(t *testing.T) {
	daemon := startLibvirtd(t)
	c := daemon.newCluster()
	ids := c.Create(t, 2)
	machines, err := daemon.actuator.Observe(t.Context(), c.Target())
	testenv.ExpectNoError(t, err)
	for _, m := range machines {
		if host, _ := os.Hostname(); m.Account != "libvirt/"+host+"/test:///default" {
			t.Errorf("machine %+v, want a machine of this host", m)
		}
	}
	for name, row := range map[string]struct {
		secret map[string][]byte
		class  actuator.ErrorClass
		says   string
	}{
		"client certificate of another authority is CredentialsInvalid": {daemon.credentials(t, newTestAuthority(t), "torpor"), actuator.CredentialsInvalid, "rejects clientcert.pem"},
		"daemon certificate of another authority is Unreachable":        {with(daemon.secret, authorityKey, newTestAuthority(t).pem), actuator.Unreachable, "not signed by cacert.pem"},
		"daemon under an unlisted name is refused":                      {with(daemon.secret, uriKey, []byte(strings.Replace(string(daemon.secret[uriKey]), "127.0.0.1", "localhost", 1))), actuator.Other, "--allow-endpoints lists"},
		"driver that the daemon lacks is Unreachable":                   {with(daemon.secret, uriKey, []byte("qemu+tls://"+daemon.address+"/system")), actuator.Unreachable, "the daemon cannot open qemu:///system"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := daemon.actuator.Observe(t.Context(), actuator.Target{InfraID: c.infraID, Credentials: row.secret})
			if actuator.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, want class %q and %q", err, row.class, row.says)
			}
		})
	}
	d, err := daemon.keeper.findDomain(t.Context(), ids[0])
	testenv.ExpectNoError(t, err)
	_, err = daemon.keeper.callFor(t.Context(), procDomainSuspend, d)
	testenv.ExpectNoError(t, err)
	err = daemon.actuator.Stop(t.Context(), c.Target(), ids)
	if actuator.ClassOf(err) != actuator.Other || !strings.Contains(err.Error(), "virsh resume") {
		t.Errorf("stop a paused domain: %v, want class %q", err, actuator.Other)
	}
	states := map[string]actuator.MachineState{}
	machines, err = daemon.actuator.Observe(t.Context(), c.Target())
	testenv.ExpectNoError(t, err)
	for _, m := range machines {
		states[m.ID] = m.State
	}
	if diff := cmp.Diff(map[string]actuator.MachineState{ids[0]: actuator.Running, ids[1]: actuator.Stopped}, states); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
}

func with(secret map[string][]byte, key string, value []byte) map[string][]byte {
	changed := maps.Clone(secret)
	changed[key] = value
	return changed
}
