// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPackDependsOnlyOnTheFiles(t *testing.T) {
	license := File{Name: "LICENSE", Content: []byte("license")}
	program := File{Name: "torpor", Content: []byte("code"), IsProgram: true}
	first, err := Pack(license, program)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Pack(program, license)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("expected the same archive for another order, found %d bytes and %d, and the error %v", len(first), len(second), err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil || !unzipped.ModTime.IsZero() {
		t.Fatalf("expected an archive without a time, found %s and the error %v", unzipped.ModTime, err)
	}
	modes := map[string]int64{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s: expected neither the time nor the user of a build, found %+v", header.Name, header)
		}
		modes[header.Name] = header.Mode
	}
	if diff := cmp.Diff(map[string]int64{"LICENSE": 0o644, "torpor": 0o755}, modes); diff != "" {
		t.Errorf("modes (-expected +found):\n%s", diff)
	}
}
