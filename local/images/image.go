// SPDX-License-Identifier: Apache-2.0

// Package images builds container images from files, without a registry. A tree of files becomes the only layer of an
// image. The image is written to a tar file that containerd can import.
package images

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// FileTree is the content of an image, by path without a leading slash.
type FileTree map[string]treeEntry

// treeEntry is one entry of a tree: a copy of Source, a symbolic link, a folder, or a small text.
type treeEntry struct {
	source, link, text string
	dir                bool
	mode               int64
	owner              int
}

// CopyFile adds a file of this machine with its permissions. It follows symbolic links.
func (t FileTree) CopyFile(name, source string) { t[name] = treeEntry{source: source} }

// AddLink adds a symbolic link.
func (t FileTree) AddLink(name, target string) { t[name] = treeEntry{link: target, mode: 0o777} }

// AddDir adds a folder with the given mode and owner.
func (t FileTree) AddDir(name string, mode int64, owner int) {
	t[name] = treeEntry{dir: true, mode: mode, owner: owner}
}

// AddText adds a small file that all users can read.
func (t FileTree) AddText(name, text string) { t[name] = treeEntry{text: text, mode: 0o644} }

// CopyFolder adds all files below a folder.
func (t FileTree) CopyFolder(name, source string) error {
	err := filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(source, file)
		t.CopyFile(path.Join(name, filepath.ToSlash(below)), file)
		return err
	})
	if err != nil {
		return fmt.Errorf("list files for an image: %w", err)
	}
	return nil
}

// openTar returns the tree as a tar file, which is generated while it is read.
func (t FileTree) openTar() (io.ReadCloser, error) {
	r, w := io.Pipe()
	// CloseWithError passes the error to the reader. If the reader stops early, the next write fails, which ends the
	// goroutine.
	go func() { _ = w.CloseWithError(t.writeTar(w)) }()
	return r, nil
}

// writeTar writes the tree to a tar file, sorted by name, so that equal trees have equal digests.
func (t FileTree) writeTar(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := t[name].writeTar(out, name); err != nil {
			return fmt.Errorf("put %s into an image: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end an image's layer: %w", err)
	}
	return nil
}

func (e treeEntry) writeTar(out *tar.Writer, name string) error {
	header := &tar.Header{Name: name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
	switch {
	case e.source != "":
		return copyFile(out, header, e.source)
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	case e.dir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(out, e.text)
	return err
}

func copyFile(out *tar.Writer, header *tar.Header, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Size, header.Mode = info.Size(), int64(info.Mode().Perm())
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Image is a tree of files, with a name and the program to run.
type Image struct {
	// Name is the name of the image in pods, with a tag.
	Name string
	Tree FileTree
	// Entrypoint is the program. User is UID:GID; empty means root.
	Entrypoint []string
	User       string
}

// WriteFile writes the image as an archive that containerd can import, in one step.
func (i Image) WriteFile(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create folder of images: %w", err)
	}
	tag, err := name.NewTag(i.Name)
	if err != nil {
		return fmt.Errorf("parse the name of the image: %w", err)
	}
	image, err := i.buildImage()
	if err != nil {
		return fmt.Errorf("create image %s: %w", i.Name, err)
	}
	partial := file + ".partial"
	if err := tarball.WriteToFile(partial, tag, image); err != nil {
		return fmt.Errorf("create image %s: %w", i.Name, err)
	}
	return os.Rename(partial, file)
}

func (i Image) buildImage() (v1.Image, error) {
	// An image never leaves this machine, so its build time is more important than its size.
	layer, err := tarball.LayerFromOpener(i.Tree.openTar, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy() // The library still uses the returned value.
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config = v1.Config{User: i.User, Entrypoint: i.Entrypoint, Env: []string{searchPath}}
	return mutate.ConfigFile(image, config)
}

const (
	// Pause keeps the namespaces of a pod open.
	Pause = "localhost/pause:1"
	// Busybox contains a shell and small tools.
	Busybox = "localhost/busybox:1"
	// MySQL contains a real mysqld 9.7, its clients and a shell.
	MySQL = "localhost/mysql:9.7"
	// Torpor contains torpor, built from this repository.
	Torpor = "localhost/torpor:dev"
	// Webapp contains a web app that answers with its environment.
	Webapp = "localhost/webapp:1"

	mysqlUser  = 10000
	nobodyUser = 65532
)

// NewPause builds the image of the static program pause.
func NewPause(program string) Image {
	t := FileTree{}
	t.CopyFile("pause", program)
	return Image{Name: Pause, Tree: t, Entrypoint: []string{"/pause"}}
}

// NewTorpor builds the image of the static program torpor, at the same path as in the image of a release.
func NewTorpor(program string) Image {
	t := FileTree{}
	t.CopyFile("torpor", program)
	t.AddDir("tmp", 0o1777, 0)
	return Image{Name: Torpor, Tree: t, Entrypoint: []string{"/torpor"}, User: userAndGroup(nobodyUser)}
}

// NewWebapp builds the image of the static program webapp.
func NewWebapp(program string) Image {
	t := FileTree{}
	t.CopyFile("webapp", program)
	return Image{Name: Webapp, Tree: t, Entrypoint: []string{"/webapp"}, User: userAndGroup(nobodyUser)}
}

// NewBusybox builds the image of a static busybox.
func NewBusybox(program string) Image {
	return Image{Name: Busybox, Tree: newBaseTree(program), Entrypoint: []string{"/bin/sh"}}
}

// NewMySQL builds the image of the MySQL server in the folder server.
func NewMySQL(server, busybox string) (Image, error) {
	t := newBaseTree(busybox)
	// Programs refer to the dynamic linker by its path below /lib64, as on every usr-merged Debian.
	for name, target := range map[string]string{"lib": "usr/lib", "lib64": "usr/lib64"} {
		t.AddLink(name, target)
	}
	t.AddDir("var/lib/mysql", 0o750, mysqlUser)
	t.AddDir("var/lib/mysql-files", 0o750, mysqlUser)
	t.AddDir("run/mysqld", 0o755, mysqlUser)
	err := t.CopyPrograms(server, "usr/sbin/mysqld", "usr/bin/mysql", "usr/bin/mysqldump", "usr/bin/mysqladmin", "usr/bin/mysqlbinlog",
		"usr/lib/mysql/plugin/semisync_source.so", "usr/lib/mysql/plugin/semisync_replica.so", "usr/lib/mysql/plugin/mysql_clone.so",
		"usr/lib/mysql/plugin/component_reference_cache.so")
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

// newBaseTree returns a usr-merged tree with a shell, users and writable folders.
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

// CopyPrograms copies programs and plugins of a usr-merged tree to the same paths, with the dynamic linker, and with
// their libraries in the linker's default path, so that no search path has to be set.
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
				continue // The library is already in the tree, or it is the dynamic linker, which has its own folder.
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
