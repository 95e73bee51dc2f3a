// SPDX-License-Identifier: Apache-2.0

package tutorials

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// command is a command on a page, with the output that the page shows.
type command struct {
	line  int
	text  string
	shows []string
}

// readCommands returns the commands of a page: in blocks of the language console, the lines that begin with a dollar,
// including continuation lines after a backslash. The lines after a command are its output.
func readCommands(page string) []command {
	var found []command
	isConsole, goesOn := false, false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			isConsole, goesOn = line == "```console", false
		case !isConsole:
		case strings.HasPrefix(line, "$ "):
			found = append(found, command{line: i + 1, text: line[2:]})
			goesOn = strings.HasSuffix(line, `\`)
		case goesOn:
			last := &found[len(found)-1]
			last.text += "\n" + line
			goesOn = strings.HasSuffix(line, `\`)
		case len(found) > 0 && strings.TrimSpace(line) != "":
			last := &found[len(found)-1]
			last.shows = append(last.shows, line)
		}
	}
	return found
}

// findMissing returns the first shown line that is missing in the output, in which the lines must have the same
// order. Three dots match any text, and all spaces match each other.
func findMissing(shown []string, output string) string {
	lines := strings.Split(output, "\n")
	for _, want := range shown {
		var parts []string
		for part := range strings.SplitSeq(strings.Join(strings.Fields(want), " "), "…") {
			parts = append(parts, regexp.QuoteMeta(part))
		}
		matches := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		at := slices.IndexFunc(lines, func(line string) bool { return matches.MatchString(strings.Join(strings.Fields(line), " ")) })
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

// writeScript writes one shell script with all commands, so that variables and the current folder are kept as in a
// terminal. It prints the number of each command before it and its exit status after it, and ends with the first
// failed command.
func writeScript(commands []command) string {
	var script strings.Builder
	for i, c := range commands {
		fmt.Fprintf(&script, "printf '\\n@@ %d begins\\n'\n%s\nended=$?\nprintf '\\n@@ %d ended with %%d\\n' $ended\n[ $ended = 0 ] || exit 1\n", i, c.text, i)
	}
	return script.String()
}

// readOutputs returns the output of each command that has succeeded, by the command's number.
func readOutputs(output string) map[int]string {
	found := map[int]string{}
	parts := regexp.MustCompile(`(?s)\n@@ (\d+) begins\n(.*?)\n@@ (\d+) ended with (\d+)\n`).FindAllStringSubmatch(output, -1)
	for _, p := range parts {
		var i int
		if _, err := fmt.Sscan(p[1], &i); err == nil && p[4] == "0" && p[1] == p[3] {
			found[i] = p[2]
		}
	}
	return found
}

func TestPagesAreRead(t *testing.T) {
	page := "Type:\n\n```console\n$ echo one; \\\n  echo two\none\nt…\n\n$ true\n```\n\n```sh\n$ not run\n```\n"
	commands := readCommands(page)
	if len(commands) != 2 || commands[0].text != "echo one; \\\n  echo two" || !slices.Equal(commands[0].shows, []string{"one", "t…"}) || commands[1].text != "true" || commands[1].line != 9 {
		t.Fatalf("expected two commands, found %+v", commands)
	}
	outputs := readOutputs("\n@@ 0 begins\none\ntwo\n\n@@ 0 ended with 0\n\n@@ 1 begins\n\n@@ 1 ended with 3\n")
	if len(outputs) != 1 || findMissing(commands[0].shows, outputs[0]) != "" {
		t.Errorf("expected that the first command printed what is shown and that the second failed, found %v", outputs)
	}
	for shown, want := range map[string]string{"two,one": "one", "one,two": "", "o…,three": "three", "NAME AGE": ""} {
		if found := findMissing(strings.Split(shown, ","), "NAME    AGE\none\ntwo\n"); found != want {
			t.Errorf("%s: expected %q to be missing, found %q", shown, want, found)
		}
	}
}

// TestEveryTutorialIsRun fails if no test runs the commands of a page.
func TestEveryTutorialIsRun(t *testing.T) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, e := range entries {
		if e.Name() != "README.md" {
			pages = append(pages, "tutorials/"+strings.TrimSuffix(e.Name(), ".md"))
		}
	}
	var run []string
	for name := range listTutorials() {
		if strings.HasPrefix(name, "tutorials/") {
			run = append(run, name)
		}
	}
	slices.Sort(run)
	if !slices.Equal(pages, run) {
		t.Errorf("expected a test of each of %q, found them for %q", pages, run)
	}
}
