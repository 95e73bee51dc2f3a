// SPDX-License-Identifier: Apache-2.0

package gtid

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	first  = "11111111-1111-1111-1111-111111111111"
	second = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
)

func parsed(t *testing.T, text string) Set {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"an empty text is the empty set":                          {"", ""},
		"a text of blanks and commas is the empty set":            {" ,\n, ", ""},
		"a single transaction: kept":                              {first + ":5", first + ":5"},
		"a range of one number is written as the number":          {first + ":5-5", first + ":5"},
		"intervals that touch become one":                         {first + ":4-6:1-3:8", first + ":1-6:8"},
		"intervals that overlap become one":                       {first + ":1-5:2-3:4-9", first + ":1-9"},
		"servers are sorted":                                      {second + ":1," + first + ":1", first + ":1," + second + ":1"},
		"intervals of a repeated server are merged into one list": {first + ":1," + first + ":3", first + ":1:3"},
		"line breaks between servers: removed":                    {first + ":1-2,\n" + second + ":1", first + ":1-2," + second + ":1"},
		"spaces and capitals: accepted":                           {" " + strings.ToUpper(second) + " : 1 - 2 : 4 ", second + ":1-2:4"},
		"a tag: kept":                                             {first + ":tag:1-5", first + ":tag:1-5"},
		"tags come after untagged intervals":                      {first + ":b:1:a:2-3:9," + first + ":7", first + ":7:a:2-3:9:b:1"},
		"tags are converted to lower case":                        {first + ":_Tag1:1", first + ":_tag1:1"},
		"the highest GTID: kept":                                  {first + ":1-9223372036854775806", first + ":1-9223372036854775806"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parsed(t, c.in).String(); got != c.want {
				t.Errorf("expected %q, found %q", c.want, got)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"a UUID alone: refused":                             first,
		"no UUID: refused":                                  "1-5",
		"a short UUID: refused":                             first[1:] + ":1",
		"a UUID without dashes: refused":                    strings.ReplaceAll(first, "-", "1") + ":1",
		"a UUID with the letter g: refused":                 strings.Replace(second, "a", "g", 1) + ":1",
		"an empty interval: refused":                        first + ":",
		"the number 0: refused":                             first + ":0",
		"a negative number: refused":                        first + ":-1",
		"a decreasing range: refused":                       first + ":5-4",
		"a number too large: refused":                       first + ":9223372036854775807",
		"a number with a plus sign: refused":                first + ":+1",
		"two numbers separated by a blank: refused":         first + ":1 2",
		"a tag without numbers: refused":                    first + ":tag",
		"a tag without numbers before another tag: refused": first + ":tag:gat:1",
		"a tag too long: refused":                           first + ":" + strings.Repeat("t", maxTag+1) + ":1",
		"a tag with a dash: refused":                        first + ":t-g:1",
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Parse(in); err == nil {
				t.Errorf("expected an error, found %q", s)
			}
		})
	}
}

func TestArithmetic(t *testing.T) {
	type result struct {
		Union, Minus, Back string
		Contains           bool
	}
	for name, c := range map[string]struct {
		a, b string
		want result
	}{
		"an empty set is a subset":                           {first + ":1-3", "", result{first + ":1-3", first + ":1-3", "", true}},
		"an equal set is a subset":                           {first + ":1-3", first + ":1-3", result{first + ":1-3", "", "", true}},
		"the union fills a gap":                              {first + ":1-3:5", first + ":4", result{first + ":1-5", first + ":1-3:5", first + ":4", false}},
		"the difference has a gap":                           {first + ":1-9", first + ":4-5", result{first + ":1-9", first + ":1-3:6-9", "", true}},
		"the difference consists of two intervals":           {first + ":1-9", first + ":1:4-5:9", result{first + ":1-9", first + ":2-3:6-8", "", true}},
		"a partly overlapping set is not a subset":           {first + ":1-3:5-7:9", first + ":3-5:9-10", result{first + ":1-7:9-10", first + ":1-2:6-7", first + ":4:10", false}},
		"a set of another server is not a subset":            {first + ":1", second + ":1", result{first + ":1," + second + ":1", first + ":1", second + ":1", false}},
		"a set with a tag is separate from the untagged set": {first + ":1", first + ":tag:1", result{first + ":1:tag:1", first + ":1", first + ":tag:1", false}},
		"the set of one of several servers is a subset":      {first + ":1-3," + second + ":1", second + ":1", result{first + ":1-3," + second + ":1", first + ":1-3", "", true}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := parsed(t, c.a), parsed(t, c.b)
			got := result{a.Union(b).String(), a.Subtract(b).String(), b.Subtract(a).String(), a.Contains(b)}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if a.String() != c.a || b.String() != c.b {
				t.Errorf("the operands changed to %q and %q", a, b)
			}
		})
	}
}

func TestPartsOfOneServer(t *testing.T) {
	s := parsed(t, first+":1-3:tag:7,"+second+":1")
	if got, want := s.NumberedBy(strings.ToUpper(first)).String(), first+":1-3:tag:7"; got != want {
		t.Errorf("expected %q, found %q", want, got)
	}
	if got, want := s.NotNumberedBy(first).String(), second+":1"; got != want {
		t.Errorf("expected %q, found %q", want, got)
	}
	if got := s.Count(); got != 5 {
		t.Errorf("expected 5 transactions, found %d", got)
	}
	if !s.NumberedBy("somebody else").IsEmpty() || s.IsEmpty() || !(Set{}).IsEmpty() {
		t.Error("expected only the set of an unknown server to be empty")
	}
}

// numbers is a reference implementation that stores every transaction separately.
type numbers map[string]bool

func listed(s Set) numbers {
	all := numbers{}
	for _, r := range s.bySource {
		for _, i := range r.intervals {
			for n := i.first; n <= i.last; n++ {
				all[fmt.Sprint(r.uuid, r.tag, n)] = true
			}
		}
	}
	return all
}

// small builds a set of low numbers from bytes: the source, the first number and the length of each interval.
func small(data []byte) Set {
	var parts []string
	for ; len(data) >= 3; data = data[3:] {
		from := []string{first, second, first + ":tag", second + ":gat"}[data[0]%4]
		low := int(data[1]%40) + 1
		parts = append(parts, fmt.Sprintf("%s:%d-%d", from, low, low+int(data[2]%6)))
	}
	s, err := Parse(strings.Join(parts, ","))
	if err != nil {
		panic(err)
	}
	return s
}

func FuzzArithmetic(f *testing.F) {
	f.Add([]byte{}, []byte{0, 1, 2})
	f.Add([]byte{0, 1, 5, 0, 9, 3, 1, 1, 1}, []byte{0, 3, 1, 1, 1, 1, 2, 2, 2})
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a, b := make([]byte, rng.IntN(40)), make([]byte, rng.IntN(40))
		for i := range a {
			a[i] = byte(rng.Uint32())
		}
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(a, b)
	}
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, b := small(x), small(y)
		la, lb := listed(a), listed(b)
		union, minus, contains := numbers{}, numbers{}, true
		for n := range la {
			union[n] = true
			if !lb[n] {
				minus[n] = true
			}
		}
		for n := range lb {
			union[n] = true
			contains = contains && la[n]
		}
		if diff := cmp.Diff(union, listed(a.Union(b))); diff != "" {
			t.Errorf("%s and %s together: %s", a, b, diff)
		}
		if diff := cmp.Diff(minus, listed(a.Subtract(b))); diff != "" {
			t.Errorf("%s without %s: %s", a, b, diff)
		}
		if a.Contains(b) != contains || a.Equal(b) != cmp.Equal(la, lb) || a.Count() != int64(len(la)) {
			t.Errorf("%s and %s: expected contains %t and %d, found %t and %d", a, b, contains, len(la), a.Contains(b), a.Count())
		}
		for _, s := range []Set{a, b, a.Union(b), a.Subtract(b)} {
			if again, err := Parse(s.String()); err != nil || !again.Equal(s) || again.String() != s.String() {
				t.Errorf("expected %s again, found %s, %v", s, again, err)
			}
		}
	})
}

// FuzzParse expects no set for invalid text, and the same set after formatting and parsing again for valid text.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", first + ":1-5:tag:7", first + ":1,\n" + second + ":2", "x", first + ":tag:", first + ":9223372036854775806"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if !s.IsEmpty() {
				t.Errorf("expected nothing beside an error, found %s", s)
			}
			return
		}
		again, err := Parse(s.String())
		if err != nil || !again.Equal(s) {
			t.Errorf("expected %q again, found %q, %v", s, again, err)
		}
		if !s.Contains(s) || !s.Subtract(s).IsEmpty() || !s.Union(s).Equal(s) {
			t.Errorf("%q differs from itself", s)
		}
	})
}

func BenchmarkHundredsOfIntervals(b *testing.B) {
	var left, right []string
	for i := range 300 {
		left = append(left, fmt.Sprintf("%d-%d", 10*i+1, 10*i+5))
		right = append(right, fmt.Sprintf("%d-%d", 10*i+3, 10*i+8))
	}
	x, _ := Parse(first + ":" + strings.Join(left, ":"))
	y, _ := Parse(first + ":" + strings.Join(right, ":"))
	for b.Loop() {
		if x.Union(y).Subtract(x).IsEmpty() || x.Contains(y) {
			b.Fatal("expected something left")
		}
	}
}
