// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/torpor-dev/torpor/local/debian"
)

// IsFetched reports whether the folder holds everything that FetchParts puts there.
func IsFetched(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "names", "iptables"))
	return err == nil
}

// BusyboxPath is the static busybox among the parts.
func BusyboxPath(dir string) string { return filepath.Join(dir, "bin", "busybox") }

// FetchParts puts containerd and what it works with into dir, out of the machine's own Debian suite; nothing is installed.
// It does nothing when they are there already. Progress goes to out.
func FetchParts(ctx context.Context, dir string, out io.Writer) error {
	if IsFetched(dir) {
		return nil
	}
	fmt.Fprintln(out, "fetching containerd, runc, CNI plugins, nftables and iptables from this machine's Debian suite: about 40 MB, half a minute")
	packages := []string{"containerd", "runc", "containernetworking-plugins", "nftables", "iptables", "busybox-static"}
	if err := debian.FetchPackages(ctx, debian.PackageRequest{Packages: packages}, dir); err != nil {
		return err
	}
	// The package makes these names when it is installed.
	names := filepath.Join(dir, "names")
	errs := []error{os.MkdirAll(names, 0o755)}
	for _, name := range []string{"ip6tables", "ip6tables-save", "ip6tables-restore", "iptables-save", "iptables-restore", "iptables"} {
		errs = append(errs, os.Symlink("../usr/sbin/xtables-nft-multi", filepath.Join(names, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("name iptables: %w", err)
	}
	return nil
}

// libraryFolder is Debian's folder of shared libraries, below / or /usr.
func libraryFolder() string {
	triplets := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
	return filepath.Join("lib", triplets[runtime.GOARCH])
}
