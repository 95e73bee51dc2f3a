// SPDX-License-Identifier: Apache-2.0

// Package mysql fetches a real MySQL server from Debian's unstable archive into a folder. Nothing is installed on the
// machine: the server runs with the dynamic linker and the libraries of its own tree.
package mysql

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/torpor-dev/torpor/local/debian"
)

// Server is the path of the server below the folder; it is there when FetchServer has finished.
const Server = "usr/sbin/mysqld"

// FetchServer puts mysqld 9.7 and its client into dir, with everything that they need to run. It does nothing when they are
// there already. Progress goes to out.
func FetchServer(ctx context.Context, dir string, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, Server)); err == nil {
		return nil
	}
	fmt.Fprintln(out, "fetching MySQL from Debian's unstable archive: about 65 MB, half a minute")
	return debian.FetchPackages(ctx, debian.PackageRequest{Suite: "sid", Packages: []string{"mysql-server-core", "mysql-client-core"}}, dir)
}
