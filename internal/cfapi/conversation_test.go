// SPDX-License-Identifier: Apache-2.0

package cfapi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// testConversations replays what the real client says, file by file:
//
//	app NAME INSTANCES STATE     make an app and wait for it; ${app} is its GUID
//	pod INDEX                    make a Pod of its current revision
//	> METHOD PATH                send a request; lines up to the next < are its body
//	< STATUS field=value ...     what has to come back; field=@x keeps a value as ${x}, field=* takes any,
//	                             field#=n counts, and location stands for the header
func (w *world) testConversations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected conversations in testdata, found %d (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			space := w.space(t)
			c := &conversation{caller: w.caller(t, "alice"), space: space, vars: map[string]string{"space": space, "org": w.org, "url": w.url}}
			for i, line := range strings.Split(string(raw), "\n") {
				c.line(t, fmt.Sprintf("%s:%d", file, i+1), c.fill(line))
			}
			if c.request != "" || c.steps == 0 {
				t.Errorf("%s: expected every request to have an answer, and at least one", file)
			}
		})
	}
}

type conversation struct {
	caller
	space         string
	vars          map[string]string
	request, body string
	steps         int
}

func (c *conversation) line(t *testing.T, at, line string) {
	t.Helper()
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.HasPrefix(line, "#"):
	case words[0] == ">":
		c.request, c.body = strings.Join(words[1:], " "), ""
	case words[0] == "<":
		c.expect(t, at, words[1:])
		c.request = ""
		c.steps++
	case c.request != "":
		c.body += line + "\n"
	case words[0] == "app":
		instances, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		c.vars["app"] = c.app(t, c.space, words[1], int32(instances), korifiv1alpha1.AppState(words[3]))
	case words[0] == "pod":
		c.pod(t, c.space, c.vars["app"], words[1])
	default:
		t.Fatalf("%s: expected app, pod, >, < or #, found %q", at, line)
	}
}

func (c *conversation) expect(t *testing.T, at string, want []string) {
	t.Helper()
	method, path, _ := strings.Cut(c.request, " ")
	path = strings.TrimPrefix(path, c.url)
	got := c.send(t, method, path, c.body)
	if strconv.Itoa(got.status) != want[0] {
		t.Fatalf("%s: %s: found %d, want %s: %s", at, c.request, got.status, want[0], got.body)
	}
	for _, w := range want[1:] {
		name, value, _ := strings.Cut(w, "=")
		value = strings.ReplaceAll(value, "_", " ")
		found := got.location
		if name != "location" {
			found = field(t, got.body, name)
		}
		switch {
		case strings.HasPrefix(value, "@"):
			c.vars[value[1:]] = found
		case value == "*" && found != "":
		case strings.ReplaceAll(found, "_", " ") != value:
			t.Errorf("%s: %s: %s: found %q, want %q in %s", at, c.request, name, found, value, got.body)
		}
	}
}

func (c *conversation) fill(line string) string {
	return os.Expand(line, func(name string) string { return c.vars[name] })
}

// field is a value of some JSON by its path, such as resources.0.state; with # at the end it is how many there are.
func field(t *testing.T, body, path string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("expected JSON, found %q: %v", body, err)
	}
	path, count := strings.CutSuffix(path, "#")
	for name := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return ""
			}
			value = v[i]
		default:
			return ""
		}
	}
	if all, ok := value.([]any); ok && count {
		return strconv.Itoa(len(all))
	}
	if value == nil {
		return ""
	}
	if n, ok := value.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}
