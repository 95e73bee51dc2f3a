// SPDX-License-Identifier: Apache-2.0

// Package debian fetches packages of Debian into a folder. It installs nothing on the machine: apt works with a
// private state folder, and the packages are only unpacked.
package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fetchTimeout limits a whole fetch.
const fetchTimeout = 15 * time.Minute

// ErrUnavailable is returned on a machine that cannot fetch packages of Debian.
var ErrUnavailable = errors.New("expected a Debian machine with apt-get, dpkg-deb and a Debian mirror in its package sources")

// PackageRequest describes packages to fetch.
type PackageRequest struct {
	// Suite is the only source of the packages, which are fetched with all dependencies, so that the tree runs with its
	// own libraries. Empty means the machine's own sources, without the dependencies that are already installed.
	Suite string
	// Packages are the names; recommended packages are omitted.
	Packages []string
}

// FetchPackages fetches packages and moves them to dir in one step, so that an interrupted fetch leaves no folder
// that looks complete.
func FetchPackages(ctx context.Context, r PackageRequest, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	state, err := os.MkdirTemp("", "torpor-apt-")
	if err != nil {
		return fmt.Errorf("create a folder for apt's private state: %w", err)
	}
	defer func() { _ = os.RemoveAll(state) }() // Files that remain in the temporary folder do no harm.
	if err := r.prepareState(ctx, state); err != nil {
		return err
	}
	if err := r.downloadPackages(ctx, state); err != nil {
		return err
	}
	return unpackPackages(ctx, state, dir)
}

func findMirror(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("%w: list the package sources: %w", ErrUnavailable, err)
	}
	for line := range strings.Lines(string(text)) {
		if uri := strings.TrimRight(strings.TrimSpace(line), "/"); strings.HasSuffix(uri, "debian") {
			return uri, nil
		}
	}
	return "", ErrUnavailable
}

func (r PackageRequest) prepareState(ctx context.Context, state string) error {
	mirror, err := findMirror(ctx)
	if err != nil {
		return err
	}
	errs := []error{os.Chmod(state, 0o755)} // apt reads as another user when root runs it.
	for _, folder := range []string{"state/lists/partial", "cache/archives/partial", "etc"} {
		errs = append(errs, os.MkdirAll(filepath.Join(state, folder), 0o755))
	}
	var installed []byte
	if r.Suite == "" {
		all, err := os.ReadFile("/var/lib/dpkg/status")
		if err != nil {
			return fmt.Errorf("%w: read the installed packages: %w", ErrUnavailable, err)
		}
		installed = []byte(withoutPackages(string(all), r.Packages))
	}
	source := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + mirror + " " + r.Suite + " main\n"
	errs = append(errs,
		os.WriteFile(filepath.Join(state, "state/status"), installed, 0o600),
		os.WriteFile(filepath.Join(state, "etc/sources.list"), []byte(source), 0o644),
	)
	return errors.Join(errs...)
}

// withoutPackages removes packages from dpkg's list, so that apt fetches them even if the machine has them.
func withoutPackages(status string, packages []string) string {
	drop := map[string]bool{}
	for _, p := range packages {
		drop["Package: "+p] = true
	}
	var kept strings.Builder
	for stanza := range strings.SplitSeq(status, "\n\n") {
		if first, _, _ := strings.Cut(stanza, "\n"); !drop[first] && stanza != "" {
			kept.WriteString(strings.TrimRight(stanza, "\n") + "\n\n")
		}
	}
	return kept.String()
}

func (r PackageRequest) downloadPackages(ctx context.Context, state string) error {
	folders := map[string]string{"Dir::State": "state", "Dir::State::status": "state/status", "Dir::Cache": "cache"}
	if r.Suite != "" {
		folders["Dir::Etc::sourcelist"] = "etc/sources.list"
		folders["Dir::Etc::sourceparts"] = "none"
		folders["Dir::Etc::preferencesparts"] = "none"
	}
	// Otherwise apt would run as a separate user, which has no access to a private folder.
	options := []string{"-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"}
	for name, value := range folders {
		options = append(options, "-o", name+"="+filepath.Join(state, value))
	}
	install := append([]string{"install", "-y", "--download-only", "--no-install-recommends"}, r.Packages...)
	for _, args := range [][]string{{"update"}, install} {
		if text, err := exec.CommandContext(ctx, "apt-get", slices.Concat(options, args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("fetch %s with apt-get: %w: %s", strings.Join(r.Packages, ", "), err, strings.TrimSpace(string(text)))
		}
	}
	return nil
}

func unpackPackages(ctx context.Context, state, dir string) error {
	packages, err := filepath.Glob(filepath.Join(state, "cache/archives/*.deb"))
	if err != nil || len(packages) == 0 {
		return fmt.Errorf("expected packages from apt-get, found none (%w): run it again", err)
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("remove the files of an interrupted fetch: %w", err)
	}
	for _, p := range packages {
		if text, err := exec.CommandContext(ctx, "dpkg-deb", "-x", p, partial).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", filepath.Base(p), err, strings.TrimSpace(string(text)))
		}
	}
	// The rename comes last, so that an interrupted fetch leaves no folder that looks complete.
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.RemoveAll(dir), os.Rename(partial, dir)); err != nil {
		return fmt.Errorf("put the packages in their place: %w", err)
	}
	return nil
}

// MySQLServer is the path of the server below the folder; it exists once FetchMySQL has finished.
const MySQLServer = "usr/sbin/mysqld"

// FetchMySQL fetches mysqld 9.7 and its client from Debian's unstable archive into dir, with all dependencies
// including the dynamic linker. It does nothing if they already exist. It reports progress to out.
func FetchMySQL(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, MySQLServer)); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching MySQL from Debian's unstable archive: about 65 MB, half a minute")
	return FetchPackages(ctx, PackageRequest{Suite: "sid", Packages: []string{"mysql-server-core", "mysql-client-core"}}, dir)
}

// Libvirtd is the path of the daemon below the folder; it exists once FetchLibvirt has finished.
const Libvirtd = "usr/sbin/libvirtd"

// FetchLibvirt fetches libvirtd with the driver and the machines of QEMU from Debian 12 into dir, with all
// dependencies including the dynamic linker. It does nothing if they already exist. It reports progress to out.
func FetchLibvirt(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, Libvirtd)); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching libvirt and QEMU from Debian 12: 230 MB unpacked, half a minute")
	return FetchPackages(ctx, PackageRequest{Suite: "bookworm", Packages: []string{"libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86"}}, dir)
}

// GuestRuntime is the path of containerd below the folder; it exists once FetchGuest has finished.
const GuestRuntime = "usr/bin/containerd"

// FetchGuest fetches a kernel and the programs of a node from Debian 12 into dir, for the disk of a virtual machine.
// It does nothing if they already exist. It reports progress to out.
func FetchGuest(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, GuestRuntime)); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching a kernel, containerd and the other programs of a node from Debian 12: 340 MB unpacked, half a minute")
	packages := []string{"linux-image-cloud-amd64", "containerd", "runc", "containernetworking-plugins", "kmod", "iproute2", "mount", "busybox-static"}
	return FetchPackages(ctx, PackageRequest{Suite: "bookworm", Packages: packages}, dir)
}

// novaSettings is the settings file of nova that its tests read, relative to Python's package folder.
const novaSettings = "usr/lib/python3/dist-packages/etc/nova/api-paste.ini"

// FetchNova fetches OpenStack's compute service from Debian's unstable archive into dir, with the dependencies of
// its own functional tests including Python and the dynamic linker. It does nothing if they already exist. It
// reports progress to out.
func FetchNova(ctx context.Context, dir string, out io.Writer) error {
	settings := filepath.Join(dir, novaSettings)
	if _, err := os.Stat(settings); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching nova from Debian's unstable archive: 650 MB unpacked, about a minute")
	packages := []string{
		"python3-nova", "nova-common", "python3-placement", "python3-testtools", "python3-fixtures", "python3-oslotest", "python3-wsgi-intercept",
		"python3-ddt", "python3-requests-mock", "python3-subunit", "python3-stestr", "python3-gabbi",
	}
	if err := FetchPackages(ctx, PackageRequest{Suite: "sid", Packages: packages}, dir); err != nil {
		return err
	}
	packaged, err := filepath.Rel(filepath.Dir(settings), filepath.Join(dir, "usr/share/nova-common/api-paste.ini"))
	if err != nil {
		return fmt.Errorf("find nova's settings: %w", err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(settings), 0o755), os.Symlink(packaged, settings)); err != nil {
		return fmt.Errorf("copy nova's settings to the path at which its tests read them: %w", err)
	}
	return nil
}

// FetchEngine fetches Docker's container engine from this machine's Debian suite into dir, with containerd, runc and
// a program for images. It does nothing if they already exist. It reports progress to out.
func FetchEngine(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, "usr/sbin/dockerd")); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching Docker from this machine's Debian suite: about 60 MB, half a minute")
	return FetchPackages(ctx, PackageRequest{Packages: []string{"docker.io", "containerd", "runc", "busybox-static"}}, dir)
}

// FetchBMC fetches OpenIPMI's simulator of management controllers from this machine's Debian suite into dir. It does
// nothing if it already exists. It reports progress to out.
func FetchBMC(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, "usr/bin/ipmi_sim")); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching OpenIPMI from this machine's Debian suite: about 2 MB")
	return FetchPackages(ctx, PackageRequest{Packages: []string{"openipmi", "libopenipmi0"}}, dir)
}
