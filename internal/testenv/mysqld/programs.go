// SPDX-License-Identifier: Apache-2.0

package mysqld

import (
	"os"
	"testing"
)

// ServerPrograms is what a test needs that starts servers in its own way.
type ServerPrograms struct {
	// Command starts mysqld from the tree; options follow it.
	Command []string
	// Options name the folders of the tree, and may follow others.
	Options []string
	// Network is the first three bytes of loopback addresses that the test has for itself, for example 127.30.4.
	Network string
	// Dir is an empty folder with a short name.
	Dir string
}

// FindServerPrograms finds the server. The test is skipped where there is none.
func FindServerPrograms(t testing.TB) ServerPrograms {
	t.Helper()
	b := &Installation{tree: os.Getenv("TORPOR_MYSQL")}
	if _, err := os.Stat(b.joinPath("usr/sbin/mysqld")); err != nil {
		t.Skipf("no real MySQL: TORPOR_MYSQL is %q and names no folder with usr/sbin/mysqld: run make mysql on Debian", b.tree)
	}
	network := reserveNetwork(t)
	options := []string{
		"--basedir=" + b.joinPath("usr"), "--lc-messages-dir=" + b.joinPath("usr/share/mysql"),
		"--character-sets-dir=" + b.joinPath("usr/share/mysql/charsets"), "--plugin-dir=" + b.joinPath("usr/lib/mysql/plugin"),
	}
	line := b.serverCommand()
	if last := len(line) - 1; line[last] == "--user=root" { // mysqld wants its file of defaults first.
		options, line = append(options, line[last]), line[:last]
	}
	return ServerPrograms{Command: line, Options: options, Network: network, Dir: shortDir(t, network)}
}
