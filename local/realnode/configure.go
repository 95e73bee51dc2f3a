// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/pki"
)

// writeSettings writes the node's identity and the settings of its parts.
func (c Config) writeSettings() error {
	if err := c.issueCertificates(); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"containerd.toml": containerdSettings, "cni/10-torpor.conflist": cniSettings, "kubelet.yaml": kubeletSettings,
		"proxy.yaml": proxySettings, "Corefile": dnsSettings,
	} {
		if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
			return fmt.Errorf("make folder of settings: %w", err)
		}
		if err := os.WriteFile(c.path(name), []byte(c.settingsReplacer().Replace(text)), 0o600); err != nil {
			return fmt.Errorf("write settings: %w", err)
		}
	}
	return nil
}

// issueCertificates issues the node's certificate and its kubeconfig, as the tool that installs a node does.
func (c Config) issueCertificates() error {
	authority, err := pki.OpenAuthority(filepath.Join(c.ControlPlane, "pki"))
	if err != nil {
		return err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", c.adminKubeconfig())
	if err != nil {
		return fmt.Errorf("read the control plane's kubeconfig: %w", err)
	}
	if !strings.Contains(admin.Host, HostAddress) {
		return fmt.Errorf("expected a control plane on %s, which the node can reach, found %s: start it with --address %s", HostAddress, admin.Host, HostAddress)
	}
	for name, s := range map[string]pki.Subject{
		"node-" + c.Name: {Name: "system:node:" + c.Name, Groups: []string{"system:nodes"}, Hosts: []string{c.Name, Address}},
		"kube-proxy":     {Name: "system:kube-proxy"},
	} {
		if err := authority.IssueCertificate(name, s); err != nil {
			return err
		}
	}
	if err := authority.WriteKubeconfig(c.path("proxy.kubeconfig"), "kube-proxy", admin.Host); err != nil {
		return err
	}
	return authority.WriteKubeconfig(c.path("kubeconfig"), "node-"+c.Name, admin.Host)
}

func (c Config) settingsReplacer() *strings.Replacer {
	certificate := filepath.Join(c.ControlPlane, "pki", "node-"+c.Name)
	failOld := "true"
	if hasCgroupsV1() {
		failOld = "false"
	}
	return strings.NewReplacer(
		"{dir}", c.Dir, "{parts}", c.Parts, "{name}", c.Name, "{address}", Address, "{pods}", podNetwork, "{socket}", socket,
		"{pause}", images.Pause, "{cgroup}", c.cgroupRoot(), "{failCgroupV1}", failOld, "{domain}", clusterDomain,
		"{ca}", filepath.Join(c.ControlPlane, "pki", "ca.crt"), "{certificate}", certificate, "{admin}", c.adminKubeconfig(),
	)
}

// Without the right to lower oom_score_adj, as in some virtual machines, no pod starts unless it is restricted.
const containerdSettings = `version = 2
root = "{dir}/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{parts}/usr/lib/cni"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

const cniSettings = `{"cniVersion": "1.0.0", "name": "torpor", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "{pods}"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/ipam"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`

const kubeletSettings = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: {failCgroupV1}
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
containerRuntimeEndpoint: unix://{socket}
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "{ca}"}}
authorization: {mode: Webhook}
tlsCertFile: {certificate}.crt
tlsPrivateKeyFile: {certificate}.key
address: {address}
clusterDNS: ["{address}"]
clusterDomain: {domain}
resolvConf: ""
failSwapOn: false
makeIPTablesUtilChains: false
volumePluginDir: /var/lib/kubelet/plugins-exec
maxPods: 200
evictionHard: {memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 3s
nodeLeaseDurationSeconds: 9
`

const proxySettings = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: "{dir}/proxy.kubeconfig"}
mode: nftables
clusterCIDR: {pods}
hostnameOverride: {name}
oomScoreAdj: 0
conntrack: {maxPerCore: 0}
metricsBindAddress: 127.0.0.1:10249
`

const dnsSettings = `.:53 {
  bind {address}
  errors
  ready 127.0.0.1:18181
  kubernetes {domain} in-addr.arpa {
    kubeconfig {admin}
    pods insecure
    fallthrough in-addr.arpa
  }
  cache 1 {
    disable denial
  }
}
`
