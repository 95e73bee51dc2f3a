// SPDX-License-Identifier: Apache-2.0

package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// Pause holds the namespaces of a pod.
	Pause = "localhost/pause:1"
	// Busybox is a shell with small tools.
	Busybox = "localhost/busybox:1"
	// MySQL is a real mysqld 9.7 with its clients and a shell.
	MySQL = "localhost/mysql:9.7"
	// Torpor is the torpor of this tree.
	Torpor = "localhost/torpor:dev"
	// Webapp is a web app that answers with its environment.
	Webapp = "localhost/webapp:1"

	mysqlUser  = 10000
	nobodyUser = 65532
)

// NewPause makes the image of the static program pause.
func NewPause(program string) Image {
	t := FileTree{}
	t.CopyFile("pause", program)
	return Image{Name: Pause, Tree: t, Entrypoint: []string{"/pause"}}
}

// NewTorpor makes the image of the static program torpor, at the same place as the Dockerfile.
func NewTorpor(program string) Image {
	t := FileTree{}
	t.CopyFile("torpor", program)
	t.AddDir("tmp", 0o1777, 0)
	return Image{Name: Torpor, Tree: t, Entrypoint: []string{"/torpor"}, User: userAndGroup(nobodyUser)}
}

// NewWebapp makes the image of the static program webapp.
func NewWebapp(program string) Image {
	t := FileTree{}
	t.CopyFile("webapp", program)
	return Image{Name: Webapp, Tree: t, Entrypoint: []string{"/webapp"}, User: userAndGroup(nobodyUser)}
}

// NewBusybox makes the image of a static busybox.
func NewBusybox(program string) Image {
	return Image{Name: Busybox, Tree: newBaseTree(program), Entrypoint: []string{"/bin/sh"}}
}

// NewMySQL makes the image of the server that was fetched into the folder server.
func NewMySQL(server, busybox string) (Image, error) {
	t := newBaseTree(busybox)
	// The dynamic linker is asked for by its path below /lib64, as on every usr-merged Debian.
	for name, target := range map[string]string{"lib": "usr/lib", "lib64": "usr/lib64"} {
		t.AddLink(name, target)
	}
	t.AddDir("var/lib/mysql", 0o750, mysqlUser)
	t.AddDir("var/lib/mysql-files", 0o750, mysqlUser)
	t.AddDir("run/mysqld", 0o755, mysqlUser)
	err := t.CopyPrograms(server, "usr/sbin/mysqld", "usr/bin/mysql", "usr/bin/mysqldump", "usr/bin/mysqladmin", "usr/bin/mysqlbinlog",
		"usr/lib/mysql/plugin/semisync_source.so", "usr/lib/mysql/plugin/semisync_replica.so", "usr/lib/mysql/plugin/mysql_clone.so")
	if err != nil {
		return Image{}, err
	}
	for _, folder := range []string{"usr/share/mysql/charsets", "usr/share/mysql/english"} {
		if err := t.CopyFolder(folder, filepath.Join(server, folder)); err != nil {
			return Image{}, err
		}
	}
	return Image{Name: MySQL, Tree: t, Entrypoint: []string{"mysqld"}, User: userAndGroup(mysqlUser)}, nil
}

// newBaseTree is a usr-merged tree with a shell, users and places to write to.
func newBaseTree(busybox string) FileTree {
	t := FileTree{}
	t.CopyFile("usr/bin/busybox", busybox)
	for _, applet := range busyboxApplets() {
		t.AddLink("usr/bin/"+applet, "busybox")
	}
	t.AddLink("bin", "usr/bin")
	t.AddLink("sbin", "usr/sbin")
	t.AddLink("var/run", "../run")
	t.AddDir("usr/sbin", 0o755, 0)
	t.AddDir("tmp", 0o1777, 0)
	t.AddDir("run", 0o1777, 0)
	t.AddDir("root", 0o700, 0)
	t.AddText("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nmysql:x:10000:10000:mysql:/var/lib/mysql:/bin/sh\nnobody:x:65532:65532:nobody:/tmp:/bin/sh\n")
	t.AddText("etc/group", "root:x:0:\nmysql:x:10000:\nnobody:x:65532:\n")
	return t
}

func userAndGroup(user int) string { return strconv.Itoa(user) + ":" + strconv.Itoa(user) }

func busyboxApplets() []string {
	return []string{
		"awk", "basename", "cat", "chmod", "chown", "cp", "cut", "date", "dd", "df", "dirname", "du", "echo", "env", "expr", "false",
		"find", "grep", "gunzip", "gzip", "head", "hostname", "httpd", "id", "kill", "ln", "ls", "md5sum", "mkdir", "mktemp", "mv", "nc",
		"nproc", "nslookup", "od", "ping", "printenv", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sh", "sha256sum",
		"sleep", "sort", "stat", "sync", "tail", "tar", "tee", "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "wget",
		"which", "whoami", "xargs",
	}
}

// CopyPrograms takes programs and plugins of a usr-merged tree to the same places, with the dynamic linker and the
// libraries that they need where the linker looks by itself, so that no search path has to be set.
func (t FileTree) CopyPrograms(root string, names ...string) error {
	folders, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	if err != nil || len(folders) != 1 {
		return fmt.Errorf("expected one folder of libraries below %s, found %d: remove it and fetch it again", root, len(folders))
	}
	queue := make([]string, 0, len(names))
	for _, name := range names {
		t.CopyFile(name, filepath.Join(root, name))
		queue = append(queue, filepath.Join(root, name))
	}
	for len(queue) > 0 {
		needed, interpreter, err := readDynamicSection(queue[0])
		if err != nil {
			return err
		}
		queue = queue[1:]
		if interpreter != "" {
			t.CopyFile("usr"+interpreter, filepath.Join(root, "usr", interpreter))
		}
		for _, library := range needed {
			name := filepath.Join("usr/lib", filepath.Base(folders[0]), library)
			source := filepath.Join(folders[0], library)
			if _, err := os.Stat(source); t[name].source != "" || err != nil && strings.HasPrefix(library, "ld-") {
				continue // It is there, or it is the dynamic linker, which lives in its own folder.
			} else if err != nil {
				return fmt.Errorf("find a library that an image needs: %w", err)
			}
			t.CopyFile(name, source)
			queue = append(queue, source)
		}
	}
	return nil
}

func readDynamicSection(file string) (needed []string, interpreter string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, "", fmt.Errorf("read the program %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if needed, err = f.ImportedLibraries(); err != nil {
		return nil, "", fmt.Errorf("read the libraries of %s: %w", file, err)
	}
	if section := f.Section(".interp"); section != nil {
		data, err := section.Data()
		return needed, strings.TrimRight(string(data), "\x00"), err
	}
	return needed, "", nil
}
