// SPDX-License-Identifier: Apache-2.0

package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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

// readDynamicSection reads which libraries a file needs and which dynamic linker it asks for.
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
