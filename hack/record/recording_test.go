// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func writeLines(t *testing.T, pauses time.Duration, parts ...string) *recording {
	t.Helper()
	clk := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	r := newRecording(clk, &bytes.Buffer{})
	for _, part := range parts {
		clk.SetTime(clk.Now().Add(pauses))
		if _, err := r.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestLinesHaveTheTimeOfTheirEnd(t *testing.T) {
	r := writeLines(t, 1500*time.Millisecond, "one\ntw", "o <\"\xc3", "\xa9\">\n", "last")
	cast, err := r.formatCast("nights")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"height":30,"idle_time_limit":2,"title":"nights","version":2,"width":100}
[1.5,"o","one\r\n"]
[4.5,"o","two <\"é\">\r\n"]
[6,"o","last\r\n"]
`
	if cast != want {
		t.Errorf("expected\n%sfound\n%s", want, cast)
	}
}

func TestPictureHasTheChosenLines(t *testing.T) {
	long := strings.Repeat("é", columns)
	r := writeLines(t, time.Second, "before\n", "\x1b[1m== stop it\x1b[0m\n", "a < b\n", long+"é\n", "after\n")
	for _, test := range []struct {
		from  string
		lines int
		want  []string
	}{
		{"== stop", 2, []string{"== stop it", "a < b"}},
		{"a <", 3, []string{"a < b", long, "é"}},
		{"", 2, []string{"é", "after"}},
		{"", 99, []string{"before", "== stop it", "a < b", long, "é", "after"}},
	} {
		svg, err := r.drawPicture(test.from, test.lines)
		if err != nil {
			t.Fatal(err)
		}
		var picture struct {
			Lines []string `xml:"g>text"`
		}
		if err := xml.Unmarshal([]byte(svg), &picture); err != nil {
			t.Fatal(err)
		}
		found := strings.ReplaceAll(strings.Join(picture.Lines, "\n"), "\u00a0", " ")
		if found != strings.Join(test.want, "\n") {
			t.Errorf("%q, %d lines: expected %q, found %q", test.from, test.lines, test.want, found)
		}
	}
	if _, err := r.drawPicture("nothing", 1); err == nil {
		t.Error("expected an error if no line begins with the text, found none")
	}
}

func TestCommandIsRecorded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "new", "demo")
	var out bytes.Buffer
	record := func(script string) error {
		return recordCommand(t.Context(), clock.RealClock{}, []string{"--out=" + name, "sh", "-c", script}, &out)
	}
	if err := record("echo seen; exit 3"); err == nil {
		t.Error("expected the failure of the command, found none")
	}
	if _, err := os.Stat(name + ".cast"); err == nil {
		t.Error("expected no recording of a command that failed, found one")
	}
	if err := record("echo seen; echo also >&2"); err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{".cast", ".svg"} {
		text, err := os.ReadFile(name + ending)
		if err != nil || !strings.Contains(string(text), "seen") || !strings.Contains(string(text), "also") {
			t.Errorf("%s: expected both lines, found %q, %v", ending, text, err)
		}
	}
	if out.String() != "seen\nseen\nalso\n" {
		t.Errorf("expected the output of both commands, found %q", out.String())
	}
}
