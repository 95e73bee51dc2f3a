// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"errors"
	"testing"
	"time"
)

// lookStep is one step of a history: the seconds since its start, the result of the query, and the expected presence.
type lookStep struct {
	at   float64
	see  lookResult
	want Presence
}

func TestJudge(t *testing.T) {
	here := lookResult{outcome: outcomePresent, version: "v1", scope: "Namespaced", plural: "widgets", crdKnown: true, uid: "1"}
	orphan, again := here, here
	orphan.uid, again.uid = "", "2"
	lost := lookResult{err: errors.New("503")}
	no, warm := lookResult{outcome: outcomeMissing}, lookResult{outcome: outcomeInitializing}
	cases := map[string]struct {
		goneAt float64 // second of the CRD's deletion; 0 if the CRD is not deleted
		looks  []lookStep
	}{
		"a kind that is absent at the first query is absent":                           {looks: []lookStep{{0, no, Absent}}},
		"a kind that is served at the first query is served":                           {looks: []lookStep{{0, here, Served}}},
		"an outage at the first query is unclear":                                      {looks: []lookStep{{0, lost, Unclear}, {1, here, Served}}},
		"a kind is not served while its storage initializes":                           {looks: []lookStep{{0, warm, Absent}, {1, here, Served}}},
		"one miss without a deletion is unclear":                                       {looks: []lookStep{{0, here, Served}, {5, no, Unclear}, {6, here, Served}}},
		"three misses within two seconds are unclear":                                  {looks: []lookStep{{0, here, Served}, {5, no, Unclear}, {5.1, no, Unclear}, {5.2, no, Unclear}}},
		"three misses over two seconds mean absent":                                    {looks: []lookStep{{0, here, Served}, {5, no, Unclear}, {6, no, Unclear}, {7, no, Absent}}},
		"misses count only if they are consecutive":                                    {looks: []lookStep{{0, here, Served}, {5, no, Unclear}, {6, here, Served}, {7, no, Unclear}, {9, no, Unclear}}},
		"a deletion and one miss mean absent":                                          {goneAt: 5, looks: []lookStep{{0, here, Served}, {5, no, Absent}}},
		"a deleted CRD whose kind is still served is unclear at first":                 {goneAt: 5, looks: []lookStep{{0, here, Served}, {5, orphan, Unclear}, {6, no, Absent}}},
		"a kind that is served eleven seconds after the deletion of its CRD is served": {goneAt: 5, looks: []lookStep{{0, here, Served}, {5, orphan, Unclear}, {16, orphan, Served}}},
		"a deletion during an outage is unclear until the outage ends":                 {goneAt: 5, looks: []lookStep{{0, here, Served}, {5, lost, Unclear}, {60, no, Absent}}},
		"a deleted and recreated kind has another identity":                            {goneAt: 5, looks: []lookStep{{0, here, Served}, {5, again, Served}}},
		"a clock that is set forward does not turn two misses into absence":            {looks: []lookStep{{0, here, Served}, {5, no, Unclear}, {9999, no, Unclear}, {9999.1, no, Absent}}},
		"a clock that is set back delays the verdict and keeps the misses":             {looks: []lookStep{{1000, here, Served}, {1001, no, Unclear}, {1, no, Unclear}, {2, no, Unclear}, {4, no, Absent}}},
		"a kind is served if its storage does not initialize in time":                  {looks: []lookStep{{0, warm, Absent}, {9, warm, Absent}, {10, warm, Served}}},
		"a deleted kind is absent while its storage initializes":                       {goneAt: 5, looks: []lookStep{{0, here, Served}, {5, warm, Absent}, {6, again, Served}}},
		"a kind that was not deleted is unclear while its storage initializes":         {looks: []lookStep{{0, here, Served}, {5, warm, Unclear}, {6, again, Served}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			var m kindHistory
			for i, l := range c.looks {
				now := start.Add(time.Duration(l.at * float64(time.Second)))
				if c.goneAt > 0 && i == 1 {
					m = m.noteCRDDeletion("1", start.Add(time.Duration(c.goneAt*float64(time.Second))))
				}
				var v Verdict
				var more bool
				m, v, more = m.judgeLook(l.see, now)
				if v.Presence != l.want {
					t.Fatalf("look %d: got %+v, want presence %d", i, v, l.want)
				}
				if v.Presence == Unclear && !more {
					t.Errorf("look %d: an unclear verdict asks for no other look", i)
				}
				if (v.Identity != "") != (v.Presence == Served) || v.Reason == "" {
					t.Errorf("look %d: incomplete verdict %+v", i, v)
				}
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	base := lookResult{outcome: outcomePresent, version: "v1", scope: "Namespaced", plural: "widgets", crdKnown: true, uid: "1"}
	cases := map[string]struct {
		before, after func(*lookResult)
		same          bool
	}{
		"another UID changes the identity":                         {after: func(s *lookResult) { s.uid = "2" }},
		"another version changes the identity":                     {after: func(s *lookResult) { s.version = "v2" }},
		"another scope changes the identity":                       {after: func(s *lookResult) { s.scope = "Cluster" }},
		"another plural changes the identity":                      {after: func(s *lookResult) { s.plural = "widgetz" }},
		"a kind that loses its CRD changes the identity":           {after: func(s *lookResult) { s.uid = "" }},
		"a terminating CRD keeps the identity":                     {after: func(s *lookResult) { s.terminating = true }, same: true},
		"a CRD that the watch lists only later keeps the identity": {before: func(s *lookResult) { s.crdKnown, s.uid = false, "" }, same: true},
		"a lost watch keeps the identity":                          {after: func(s *lookResult) { s.crdKnown, s.uid = false, "" }, same: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := base, base
			if c.before != nil {
				c.before(&before)
			}
			if c.after != nil {
				c.after(&after)
			}
			m, first, _ := kindHistory{}.judgeLook(before, time.Unix(1000, 0))
			if m.isSameKind(after) != c.same {
				t.Errorf("same: %v, want %v", !c.same, c.same)
			}
			m, second, _ := m.judgeLook(after, time.Unix(1001, 0))
			if (first.Identity == second.Identity) != c.same {
				t.Errorf("identity %s became %s", first.Identity, second.Identity)
			}
			if _, third, _ := m.judgeLook(after, time.Unix(1002, 0)); third != second {
				t.Errorf("%+v became %+v with nothing new", second, third)
			}
		})
	}
}
