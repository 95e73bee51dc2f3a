// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// guestNode is a node in a virtual machine.
type guestNode struct {
	name, address, pods string
}

func newGuestNode(infraID string, number int) guestNode {
	return guestNode{fmt.Sprintf("%s-worker-%d", infraID, number), fmt.Sprintf("10.250.0.%d", 100+number), fmt.Sprintf("10.244.%d.0/24", 100+number)}
}

func (n guestNode) replacer() *strings.Replacer {
	return strings.NewReplacer("{name}", n.name, "{address}", n.address, "{pods}", n.pods, "{gateway}", gateway, "{bridge}", bridge, "{pause}", "localhost/pause:1")
}

// prepareKernel writes the kernel of a guest, and an initrd that mounts its disk, to the folder work.
func prepareKernel(t *testing.T, tree, work string) {
	t.Helper()
	kernels, err := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	testenv.ExpectNoError(t, err)
	if len(kernels) != 1 {
		t.Fatalf("expected one kernel below %s, found %v: remove the folder and run make guest", tree, kernels)
	}
	// The script uses busybox's cpio, because some machines have no cpio.
	mustRun(t, "/bin/sh", "-euc", `
version=${1##*/vmlinuz-}; tree=$2; work=$3; init=$4
cp "$1" "$work/vmlinuz"
chroot "$tree" /sbin/depmod "$version"
first="$work/first"; mkdir -p "$first/bin" "$first/dev" "$first/proc" "$first/root" "$first/modules"
cp "$tree/bin/busybox" "$first/bin/"; cp "$init" "$first/init"; chmod +x "$first/init"
number=10
for module in virtio_pci virtio_blk; do
  for file in $(chroot "$tree" /sbin/modprobe -S "$version" --show-depends $module | sed -n 's/^insmod \([^ ]*\).*/\1/p'); do
    ls "$first/modules/"*"-${file##*/}" >/dev/null 2>&1 && continue
    cp "$tree$file" "$first/modules/$number-${file##*/}"; number=$((number+1))
  done
done
(cd "$first" && find . | "$tree/bin/busybox" cpio -o -H newc) > "$work/initrd"
`, "sh", kernels[0], tree, work, "testdata/initrd-init")
}

// makeDisk creates the disk of a node, with its certificate and the images of its Pods.
func (n guestNode) makeDisk(t *testing.T, env *testenv.Environment, tree, work string) {
	t.Helper()
	root, programs := filepath.Join(work, n.name), filepath.Dir(os.Getenv("TORPOR_LOCAL"))
	mustRun(t, "/bin/sh", "-euc", `cp -a "$1" "$2"; rm -rf "$2/boot" "$2/usr/share/doc" "$2/usr/share/man" "$2/usr/share/locale"`, "sh", tree, root)
	for _, folder := range []string{"proc", "sys", "dev", "run", "tmp", "root", "images", "etc/kubelet", "etc/containerd", "etc/cni/net.d", "var/lib/data"} {
		testenv.ExpectNoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	for name, to := range map[string]string{
		"node-init": "node-init", "kubelet.yaml": "etc/kubelet/config.yaml", "containerd.toml": "etc/containerd/config.toml", "cni.conflist": "etc/cni/net.d/10-torpor.conflist",
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		testenv.ExpectNoError(t, err)
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(root, to), []byte(n.replacer().Replace(string(text))), 0o755))
	}
	mustRun(t, "cp", filepath.Join(programs, "kubelet"), filepath.Join(root, "usr/bin/kubelet"))
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644))
	writeImage(t, filepath.Join(root, "images/pause.tar"), "localhost/pause:1", "pause", filepath.Join(programs, "pause"), "/pause")
	writeImage(t, filepath.Join(root, "images/busybox.tar"), "localhost/busybox:1", "bin/busybox", filepath.Join(tree, "bin/busybox"), "/bin/busybox")
	n.writeCredentials(t, env, filepath.Join(root, "etc/kubelet"))
	disk := filepath.Join(work, n.name+".disk")
	mustRun(t, "/bin/sh", "-euc", `truncate -s 2G "$1"; mkfs.ext4 -q -F -d "$2" "$1"; rm -rf "$2"`, "sh", disk, root)
	description, err := os.ReadFile("testdata/domain.xml")
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(work, n.name+".xml"), []byte(n.replacer().Replace(string(description))), 0o600))
}

// writeCredentials signs a node's certificate with the CA of its cluster, as an installer of nodes does.
func (n guestNode) writeCredentials(t *testing.T, env *testenv.Environment, dir string) {
	t.Helper()
	pki := filepath.Join(filepath.Dir(env.KubeconfigPath(t)), "pki")
	authorities, err := cert.CertsFromFile(filepath.Join(pki, "ca.crt"))
	testenv.ExpectNoError(t, err)
	private, err := keyutil.PrivateKeyFromFile(filepath.Join(pki, "ca.key"))
	testenv.ExpectNoError(t, err)
	signer, isSigner := private.(crypto.Signer)
	if !isSigner {
		t.Fatalf("expected a key that signs in %s, found %T", pki, private)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testenv.ExpectNoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "system:node:" + n.name, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{n.name}, IPAddresses: []net.IP{net.ParseIP(n.address)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authorities[0], own.Public(), signer)
	testenv.ExpectNoError(t, err)
	key, err := keyutil.MarshalPrivateKeyToPEM(own)
	testenv.ExpectNoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	authority, err := cert.EncodeCertificates(authorities...)
	testenv.ExpectNoError(t, err)
	for name, content := range map[string][]byte{"ca.crt": authority, "node.crt": certificate, "node.key": key} {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["own"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: authority}
	c.AuthInfos["node"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	c.Contexts["own"] = &clientcmdapi.Context{Cluster: "own", AuthInfo: "node"}
	c.CurrentContext = "own"
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*c, filepath.Join(dir, "kubeconfig")))
}

// writeImage writes an image with one program, as an archive that containerd can import.
func writeImage(t *testing.T, file, name, path, program, entrypoint string) {
	t.Helper()
	content, err := os.ReadFile(program)
	testenv.ExpectNoError(t, err)
	layer := buildTar(t, map[string][]byte{path: content})
	digest := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": []string{entrypoint}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	testenv.ExpectNoError(t, err)
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	testenv.ExpectNoError(t, err)
	archive := buildTar(t, map[string][]byte{"config.json": config, "manifest.json": manifest, "layer.tar": layer})
	testenv.ExpectNoError(t, os.WriteFile(file, archive, 0o600))
}

func buildTar(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, content := range files {
		testenv.ExpectNoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := w.Write(content)
		testenv.ExpectNoError(t, err)
	}
	testenv.ExpectNoError(t, w.Close())
	return archive.Bytes()
}
