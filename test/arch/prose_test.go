// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// listProseHabits returns turns of phrase that the documentation of Kubernetes does not use, each with a replacement.
// docs/wording.md has examples.
func listProseHabits() []proseHabit {
	habit := func(name, pattern, advice string) proseHabit {
		return proseHabit{name, regexp.MustCompile(pattern), advice}
	}
	return []proseHabit{
		habit("people", `(?i)\b(?:somebody|nobody|anybody|whoever|everybody)\b`,
			"name the actor (user, controller, caller, API server), or use the passive"),
		habit("who", `(?i)(?:^|[.,;:(|] ?|\b(?:by|of|to|for|from|than|with) )who(?:[^\w]|$)`, "use a noun, such as requester"),
		habit("what", `(?i)(?:^|[.,;:(|] ?|\b(?:by|of|to|for|from|than|with|in) )what(?: i[^f]| [^i]|[^ \w]|$)`,
			"use a noun, such as stopped objects"),
		habit("told", `(?i)\b(?:tell|tells|told|untold|say|says|said)\b`, "things report, return, record, emit, list or mean"),
		habit("quaint", `(?i)\b(?:anew|for good|(?:is|are) none|none of|mend(?:ed|s|ing)?|thereof|meanwhile|for want of|heir|pretender)\b|(?:^|[^-\w])besides?\b`,
			"write again, next to, permanently, is not, fix, until then"),
		habit("history", `\b(?:[Ff]inding|[Rr]eview)s? [A-Z]?\d|\b(?:[BFHKUP]\d|S[124-9])\d?(?:\.\d{1,2})?[,;:) |]|\bsince then\b|\bbefore,|\bused to\b`,
			"describe the present; history is in git, and for users in CHANGELOG.md"),
	}
}

type proseHabit struct {
	name    string
	pattern *regexp.Regexp
	advice  string
}

const (
	codeComments = "comments of code"
	testComments = "comments and row keys of tests"
	userTexts    = "texts for users"
	pages        = "pages"
)

// listProseLimits returns how often a habit may occur in 1,000 words of a kind of text. A change may only lower the
// limits.
func listProseLimits() map[string]map[string]float64 {
	return map[string]map[string]float64{
		codeComments: {"people": 0.1, "who": 0.1, "what": 0.3, "told": 0.3, "quaint": 0.3, "history": 0.1},
		testComments: {"people": 0.1, "who": 0.1, "what": 0.3, "told": 0.4, "quaint": 0.3, "history": 0.1},
		userTexts:    {"people": 0.05, "who": 0.1, "what": 0.1, "told": 0.1, "quaint": 0.3, "history": 0.1},
		pages:        {"people": 0.1, "who": 0.1, "what": 0.4, "told": 0.3, "quaint": 0.3, "history": 0.1},
	}
}

// proseLine is one line of text that a reader sees.
type proseLine struct {
	kind, position, text string
	// isKey is true for the key or the name of a row of a table test.
	isKey bool
}

// TestProseKeepsToPlainEnglish counts habits in comments, row keys, texts for users and pages.
func TestProseKeepsToPlainEnglish(t *testing.T) {
	words := map[string]int{}
	found := map[string]map[string][]proseLine{}
	habits := listProseHabits()
	for _, line := range append(proseOfSources(handwrittenSources(t)), proseOfPages(t)...) {
		words[line.kind] += countProseWords(line.text)
		for _, habit := range habits {
			for range habit.pattern.FindAllStringIndex(line.text, -1) {
				if found[line.kind] == nil {
					found[line.kind] = map[string][]proseLine{}
				}
				found[line.kind][habit.name] = append(found[line.kind][habit.name], line)
			}
		}
	}
	for kind, limits := range listProseLimits() {
		if words[kind] == 0 {
			t.Errorf("%s: expected words, found none", kind)
			continue
		}
		for _, habit := range habits {
			lines, limit := found[kind][habit.name], limits[habit.name]
			share := 1000 * float64(len(lines)) / float64(words[kind])
			t.Logf("%s: %s: %.2f in 1,000 of %d words", kind, habit.name, share, words[kind])
			if share > limit {
				t.Errorf("%s: expected at most %.2f of the habit %q in 1,000 words, found %.2f; %s (docs/wording.md):\n%s",
					kind, limit, habit.name, share, habit.advice, formatShortest(lines))
			}
		}
	}
}

// formatShortest formats the ten shortest lines, in which a habit is the largest share of the words.
func formatShortest(lines []proseLine) string {
	var text strings.Builder
	sorted := slices.SortedFunc(slices.Values(lines), func(a, b proseLine) int {
		return cmp.Or(cmp.Compare(countProseWords(a.text), countProseWords(b.text)), cmp.Compare(a.position, b.position))
	})
	for _, line := range sorted[:min(10, len(sorted))] {
		fmt.Fprintf(&text, "  %s: %s\n", line.position, strings.TrimSpace(line.text))
	}
	return text.String()
}

// countProseWords counts the fields of a text that hold a letter.
func countProseWords(text string) int {
	count := 0
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, unicode.IsLetter) {
			count++
		}
	}
	return count
}

// maxKeysWithoutSubject is the maximum number of row keys that begin with a pronoun or a connective. Such a key cannot
// be understood without the row above.
const maxKeysWithoutSubject = 3

func TestRowKeysNameTheirSubject(t *testing.T) {
	begins := regexp.MustCompile(`^(?i:it|its|that|this|these|those|they|them|he|she|his|which|who|whose|whom|what|but|and|so|or|then|there|thus|also|neither|nor|both)\b`)
	var found []proseLine
	total := 0
	for _, line := range proseOfSources(handwrittenSources(t)) {
		if line.kind != testComments || !line.isKey {
			continue
		}
		total++
		if strings.Contains(line.text, " ") && begins.MatchString(line.text) {
			found = append(found, line)
		}
	}
	t.Logf("%d of %d keys begin with a pronoun or a connective", len(found), total)
	if total == 0 || len(found) > maxKeysWithoutSubject {
		t.Errorf("expected at most %d of %d keys of rows to begin with a pronoun or a connective, found %d; begin with the subject:\n%s",
			maxKeysWithoutSubject, total, len(found), formatShortest(found))
	}
}

// proseOfSources returns the comments of Go files, the row keys and names of tests, and strings of several words that users may see.
func proseOfSources(sources []sourceFile) []proseLine {
	rowKey := regexp.MustCompile(`(?m)^\s*"([^"]+)":\s*[{&(]|\bname:\s*"([^"]+)"`)
	var lines []proseLine
	for _, s := range sources {
		isTest := s.isTest() || strings.HasPrefix(s.path, "test/env/")
		kind := codeComments
		if isTest {
			kind = testComments
		}
		for _, group := range s.file.Comments {
			for line := range strings.Lines(group.Text()) { // The method Text omits directives.
				lines = append(lines, proseLine{kind: kind, position: s.position(group), text: line})
			}
		}
		if isTest {
			for _, key := range rowKey.FindAllStringSubmatch(s.text, -1) {
				lines = append(lines, proseLine{kind: kind, position: s.path, text: key[1] + key[2], isKey: true})
			}
			continue
		}
		for _, literal := range stringLiterals(s.file) {
			if strings.Count(literal.Value, " ") >= 2 {
				lines = append(lines, proseLine{kind: userTexts, position: s.position(literal), text: literal.Value})
			}
		}
	}
	return lines
}

// proseOfPages returns the Markdown of the repository without its code. Decisions are dated and stay as they are.
func proseOfPages(t *testing.T) []proseLine {
	t.Helper()
	code := regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)")
	var lines []proseLine
	for _, name := range listFiles(t) {
		if !strings.HasSuffix(name, ".md") || strings.HasPrefix(name, "docs/adr/") {
			continue
		}
		isCode := false
		for i, line := range strings.Split(readFile(t, name), "\n") {
			switch {
			case strings.HasPrefix(strings.TrimSpace(line), "```"):
				isCode = !isCode
			case !isCode:
				lines = append(lines, proseLine{kind: pages, position: fmt.Sprintf("%s:%d", name, i+1), text: code.ReplaceAllString(line, " ")})
			}
		}
	}
	return lines
}

// TestProseHabitsAreFound has a sentence for each habit, and one that has none.
func TestProseHabitsAreFound(t *testing.T) {
	for text, want := range map[string][]string{
		"The user who stops it is recorded.":                {},
		"What if the API server is down?":                   {},
		"Nobody reads it.":                                  {"people"},
		"It is changed by who stops it.":                    {"who"},
		"The list of what sleeps, so that a poll is short.": {"what"},
		"The condition says why.":                           {"told"},
		"It is made anew.":                                  {"quaint"},
		"The review F6, since then fixed.":                  {"history", "history"},
	} {
		found := []string{}
		for _, habit := range listProseHabits() {
			for range habit.pattern.FindAllString(text, -1) {
				found = append(found, habit.name)
			}
		}
		if !slices.Equal(found, want) {
			t.Errorf("%s: expected the habits %q, found %q", text, want, found)
		}
	}
}
