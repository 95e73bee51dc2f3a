// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPageNamesTheFailures compares the table "What was tried" with the rows of TestFailures.
func TestPageNamesTheFailures(t *testing.T) {
	page, err := os.ReadFile("../docs/conditional.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## What was tried\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var numbers []int
	told := map[int]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\| (.*) \|$`).FindAllStringSubmatch(table, -1) {
		number, err := strconv.Atoi(line[1])
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, number)
		if strings.Contains(line[2], "*failures*") {
			told[number] = true
		}
	}
	var want []int
	for number := range 34 {
		want = append(want, number+1)
	}
	if diff := cmp.Diff(want, numbers); diff != "" {
		t.Errorf("rows of the page (-want +got):\n%s", diff)
	}
	shown := map[int]bool{}
	for _, row := range failures() {
		word, _, _ := strings.Cut(row.name, " ")
		number, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		shown[number] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(told))); diff != "" {
		t.Errorf("rows that TestFailures shows (-tests +page):\n%s", diff)
	}
}
