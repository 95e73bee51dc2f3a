// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/local/images"
	"github.com/torpor-dev/torpor/local/pki"
)

// settings are those of the node's parts, with words in braces that settingsReplacer fills.
//
//go:embed settings
var settings embed.FS

// writeSettings writes the node's identity and the settings of its parts.
func (c Config) writeSettings() error {
	if err := c.issueCertificates(); err != nil {
		return err
	}
	err := fs.WalkDir(settings, "settings", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := settings.ReadFile(path)
		if err != nil {
			return err
		}
		file := c.path(strings.TrimPrefix(path, "settings/"))
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(c.settingsReplacer().Replace(string(text))), 0o600))
	})
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
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
	for name, s := range map[string]pki.CertificateSubject{
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
