// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package podcluster is a whole small cluster with real pods on this machine: a control plane, a real node, Services, DNS,
// volumes, and images made from folders.
package podcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/torpor-dev/torpor/local/controlplane"
	"github.com/torpor-dev/torpor/local/mysql"
	"github.com/torpor-dev/torpor/local/realnode"
)

// NodeName is the name of the cluster's node.
const NodeName = "n1"

// ReadyFile is in the folder as long as pods can be made.
const ReadyFile = "ready"

// Config is what the cluster is started with.
type Config struct {
	// Dir keeps everything that is made, with admin.kubeconfig; what an earlier cluster has left there goes first.
	Dir string
	// Parts is the folder that machine.FetchParts has filled; images are kept there as well.
	Parts string
	// Programs is the folder with local's other names, coredns, pause, webapp and torpor.
	Programs string
	// MySQL is the folder that mysql.FetchServer has filled.
	MySQL string
	// Out gets the progress.
	Out io.Writer
}

func (c Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// KubeconfigPath is the file that lets a client in as cluster admin.
func (c Config) KubeconfigPath() string { return c.path("admin.kubeconfig") }

func (c Config) controlPlaneConfig() controlplane.Config {
	return controlplane.Config{Dir: c.path("control-plane"), Address: realnode.HostAddress}
}

// withAbsolutePaths makes the paths absolute, since the parts of the node run elsewhere.
func (c Config) withAbsolutePaths() (Config, error) {
	for _, path := range []*string{&c.Dir, &c.Parts, &c.Programs, &c.MySQL} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return c, fmt.Errorf("resolve folder: %w", err)
		}
		*path = absolute
	}
	if _, err := os.Stat(filepath.Join(c.MySQL, mysql.Server)); err != nil {
		return c, fmt.Errorf("find MySQL for its image: %w; run make mysql, which fetches it", err)
	}
	return c, nil
}

// clearFolder removes what an earlier cluster has left in the folder.
func (c Config) clearFolder() error {
	var errs []error
	for _, name := range []string{"control-plane", "node", "volumes", ReadyFile, "admin.kubeconfig"} {
		errs = append(errs, os.RemoveAll(c.path(name)))
	}
	errs = append(errs, os.MkdirAll(c.Dir, 0o755))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clear folder: %w", err)
	}
	return nil
}
