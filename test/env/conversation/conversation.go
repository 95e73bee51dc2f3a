// SPDX-License-Identifier: Apache-2.0

// Package conversation replays the requests of the cf client to the CF API, and checks the answers. A conversation is a file
// of lines:
//
//	app NAME INSTANCES STATE     create an app and wait for it; ${app} is its GUID
//	pod INDEX                    create a Pod of its current revision, unless it exists
//	> METHOD PATH                send a request; lines up to the next < are its body
//	< STATUS field=value ...     the expected answer; field=@x stores a value in ${x}, field=* matches any value,
//	                             field#=n counts, and location stands for the header
//	<~ STATUS field=value ...    the same, but the request is repeated until this answer comes
package conversation

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// APIAnswer is the answer to a request.
type APIAnswer struct {
	Status         int
	Location, Body string
}

// APIEnvironment is the API to which a conversation sends its requests.
type APIEnvironment struct {
	// URL is the address of the API, which responses may contain.
	URL string
	// Send sends a request as the client's user.
	Send func(t *testing.T, method, path, body string) APIAnswer
	// App creates an app and returns its GUID; Pod creates a Pod of the app unless it exists.
	App func(t *testing.T, name string, instances int32, state string) string
	Pod func(t *testing.T, app, index string)
	// Vars are the initial variables.
	Vars map[string]string
}

// ReplayFile replays the conversation in a file.
func ReplayFile(t *testing.T, file string, s APIEnvironment) {
	t.Helper()
	raw, err := os.ReadFile(file)
	testenv.ExpectNoError(t, err)
	c := &fileReplay{APIEnvironment: s}
	for i, line := range strings.Split(string(raw), "\n") {
		line = os.Expand(line, func(name string) string { return c.Vars[name] })
		c.executeLine(t, fmt.Sprintf("%s:%d", file, i+1), line)
	}
	if c.request != "" || c.steps == 0 {
		t.Errorf("%s: expected every request to have an answer, and at least one", file)
	}
}

type fileReplay struct {
	APIEnvironment
	request, body string
	steps         int
}

func (c *fileReplay) executeLine(t *testing.T, at, executeLine string) {
	t.Helper()
	words := strings.Fields(executeLine)
	switch {
	case len(words) == 0 || strings.HasPrefix(executeLine, "#"):
	case words[0] == ">":
		c.request, c.body = strings.Join(words[1:], " "), ""
	case words[0] == "<", words[0] == "<~":
		c.expectAnswer(t, at, words[0] == "<~", words[1:])
		c.request = ""
		c.steps++
	case c.request != "":
		c.body += executeLine + "\n"
	case words[0] == "app":
		instances, err := strconv.ParseInt(words[2], 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		c.Vars["app"] = c.App(t, words[1], int32(instances), words[3])
	case words[0] == "pod":
		c.Pod(t, c.Vars["app"], words[1])
	default:
		t.Fatalf("%s: expected app, pod, >, < or #, found %q", at, executeLine)
	}
}

func (c *fileReplay) expectAnswer(t *testing.T, at string, again bool, want []string) {
	t.Helper()
	ask := func() error { return c.compareAnswer(t, want) }
	if again {
		testenv.Eventually(t, at+": "+c.request, ask)
		return
	}
	if err := ask(); err != nil {
		t.Fatalf("%s: %s: %v", at, c.request, err)
	}
}

// compareAnswer sends the request once, and returns an error if the response differs from the expected one.
func (c *fileReplay) compareAnswer(t *testing.T, want []string) error {
	t.Helper()
	method, path, _ := strings.Cut(c.request, " ")
	got := c.Send(t, method, strings.TrimPrefix(path, c.URL), c.body)
	if strconv.Itoa(got.Status) != want[0] {
		return fmt.Errorf("found %d, want %s: %s", got.Status, want[0], got.Body)
	}
	for _, w := range want[1:] {
		name, value, _ := strings.Cut(w, "=")
		// Words are separated by spaces, so a space in a value is written as an underscore.
		value = strings.ReplaceAll(value, "_", " ")
		found := got.Location
		if name != "location" {
			found = JSONField(t, got.Body, name)
		}
		switch {
		case strings.HasPrefix(value, "@"):
			c.Vars[value[1:]] = found
		case value == "*" && found != "":
		case strings.ReplaceAll(found, "_", " ") != value:
			return fmt.Errorf("%s: found %q, want %q in %s", name, found, value, got.Body)
		}
	}
	return nil
}

// ReadLogLines returns the lines in a response from the log cache, each preceded by the index of its instance.
func ReadLogLines(body string) ([]string, error) {
	var read struct {
		Envelopes struct {
			Batch []struct {
				Instance string `json:"instance_id"`
				Log      struct {
					Payload []byte `json:"payload"`
				} `json:"log"`
			} `json:"batch"`
		} `json:"envelopes"`
	}
	if err := json.Unmarshal([]byte(body), &read); err != nil {
		return nil, fmt.Errorf("expected envelopes, found %.200q: %w", body, err)
	}
	var lines []string
	for _, e := range read.Envelopes.Batch {
		lines = append(lines, e.Instance+" "+string(e.Log.Payload))
	}
	return lines, nil
}

// JSONField returns the value at a path in JSON or YAML, such as resources.0.state; if the path ends in #, it
// returns the number of elements.
func JSONField(t *testing.T, body, path string) string {
	t.Helper()
	var value any
	if json.Unmarshal([]byte(body), &value) != nil {
		if err := yaml.Unmarshal([]byte(body), &value); err != nil {
			t.Fatalf("expected JSON or YAML, found %q: %v", body, err)
		}
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
