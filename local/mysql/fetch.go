// SPDX-License-Identifier: Apache-2.0

// Package mysql fetches a real MySQL server from Debian's unstable archive into a folder. Nothing is installed on the
// machine: apt works on a private state, and the server runs with the dynamic linker and the libraries of its own tree.
package mysql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Server is the path of the server below the folder; it is there when Fetch has finished.
const Server = "usr/sbin/mysqld"

// timeout bounds the whole fetch: about 65 MB are downloaded.
const timeout = 15 * time.Minute

// ErrNotHere is the answer of a machine that has no packages of Debian.
var ErrNotHere = errors.New("expected a Debian machine with apt-get, dpkg-deb and a Debian mirror in its package sources: tests with a real MySQL are skipped without it")

// Fetch puts mysqld 9.7 and its client into dir, with everything that they need to run. It does nothing when they are
// there already. Progress goes to out.
func Fetch(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, Server)); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mirror, err := mirrorOf(ctx)
	if err != nil {
		return err
	}
	state, err := newState(mirror)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(state) }() // A left-over in the temporary folder harms nobody.
	fmt.Fprintln(out, "fetching MySQL from Debian's unstable archive: about 65 MB, half a minute")
	if err := download(ctx, state); err != nil {
		return err
	}
	return unpack(ctx, state, dir)
}

// mirrorOf returns the address of the Debian mirror that this machine uses.
func mirrorOf(ctx context.Context) (string, error) {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNotHere, err)
		}
	}
	text, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("%w: list the package sources: %w", ErrNotHere, err)
	}
	for line := range strings.Lines(string(text)) {
		if uri := strings.TrimRight(strings.TrimSpace(line), "/"); strings.HasSuffix(uri, "debian") {
			return uri, nil
		}
	}
	return "", ErrNotHere
}

// newState makes apt's private state, whose only source is the unstable suite.
func newState(mirror string) (string, error) {
	state, err := os.MkdirTemp("", "torpor-mysql-")
	if err != nil {
		return "", fmt.Errorf("make a folder for apt's private state: %w", err)
	}
	var errs []error
	for _, folder := range []string{"state/lists/partial", "cache/archives/partial", "etc"} {
		errs = append(errs, os.MkdirAll(filepath.Join(state, folder), 0o755))
	}
	source := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + mirror + " sid main\n"
	errs = append(errs,
		os.Chmod(state, 0o755), // apt reads as another user when it is called by root.
		os.WriteFile(filepath.Join(state, "state/status"), nil, 0o600),
		os.WriteFile(filepath.Join(state, "etc/sources.list"), []byte(source), 0o644),
	)
	return state, errors.Join(errs...)
}

func download(ctx context.Context, state string) error {
	options := []string{"-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"}
	for name, value := range map[string]string{
		"Dir::State": "state", "Dir::State::status": "state/status", "Dir::Cache": "cache",
		"Dir::Etc::sourcelist": "etc/sources.list", "Dir::Etc::sourceparts": "none", "Dir::Etc::preferencesparts": "none",
	} {
		options = append(options, "-o", name+"="+filepath.Join(state, value))
	}
	update := append(options, "update")
	install := append(options, "install", "-y", "--download-only", "--no-install-recommends", "mysql-server-core", "mysql-client-core")
	for _, args := range [][]string{update, install} {
		if text, err := exec.CommandContext(ctx, "apt-get", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("fetch MySQL's packages with apt-get: %w: %s", err, strings.TrimSpace(string(text)))
		}
	}
	return nil
}

// unpack fills dir in one step, so that an interrupted fetch leaves nothing that looks whole.
func unpack(ctx context.Context, state, dir string) error {
	packages, err := filepath.Glob(filepath.Join(state, "cache/archives/*.deb"))
	if err != nil || len(packages) == 0 {
		return fmt.Errorf("expected packages from apt-get, found none (%w): run it again", err)
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("remove what an interrupted fetch has left: %w", err)
	}
	for _, p := range packages {
		if text, err := exec.CommandContext(ctx, "dpkg-deb", "-x", p, partial).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w: %s", filepath.Base(p), err, strings.TrimSpace(string(text)))
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.RemoveAll(dir), os.Rename(partial, dir)); err != nil {
		return fmt.Errorf("put MySQL in its place: %w", err)
	}
	return nil
}
