// SPDX-License-Identifier: Apache-2.0

package mysqld

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ClientsOnPath puts MySQL's own clients first on the PATH, for as long as the test runs.
func (b *Installation) ClientsOnPath(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"mysql", "mysqldump"} {
		line := b.programCommand("usr/bin/" + name)
		text := "#!/bin/sh\nexec '" + strings.Join(line, "' '") + "' \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
