// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

func parseFields(t *testing.T, text string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestFindLostFields(t *testing.T) {
	for name, row := range map[string]struct {
		written, stands string
		want            []string
	}{
		"a stored field with the written value is not lost":                      {`{"a":1,"b":{"c":"d"}}`, `{"a":1,"b":{"c":"d"}}`, nil},
		"a field that the server adds is not lost":                               {`{"a":{"b":1}}`, `{"a":{"b":1,"default":2},"other":3}`, nil},
		"a field that is not stored is lost":                                     {`{"a":1,"b":2}`, `{"b":2}`, []string{"a"}},
		"a field that is stored with another value is lost":                      {`{"a":1}`, `{"a":2}`, []string{"a"}},
		"a map that is not stored is lost as a whole":                            {`{"a":{"b":1,"c":2}}`, `{}`, []string{"a"}},
		"a lost field of a map is named by its path":                             {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, []string{"a.c"}},
		"a list that is not stored is lost as a whole":                           {`{"a":[1]}`, `{}`, []string{"a"}},
		"an empty value that is not stored is not lost":                          {`{"a":{},"b":[],"c":null}`, `{}`, nil},
		"a field lost in several list items is named once":                       {`{"a":[{"b":1,"c":1},{"b":2,"c":2}]}`, `{"a":[{"b":1},{"b":2}]}`, []string{"a[].c"}},
		"a list item that is not stored is lost":                                 {`{"a":[{"b":1},{"b":2}]}`, `{"a":[{"b":1}]}`, []string{"a[]"}},
		"a stored condition of another type is ignored":                          {`{"conditions":[{"type":"B","reason":"b"}]}`, `{"conditions":[{"type":"A","reason":"a"},{"type":"B","reason":"b"}]}`, nil},
		"a lost field of a condition is named without the type of the condition": {`{"conditions":[{"type":"B","observedGeneration":1}]}`, `{"conditions":[{"type":"B"}]}`, []string{"conditions[].observedGeneration"}},
		"a condition that is not stored is lost as a whole":                      {`{"conditions":[{"type":"B"}]}`, `{"conditions":[{"type":"A"}]}`, []string{"conditions[]"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, findLostFields("", parseFields(t, row.written), parseFields(t, row.stands))); diff != "" {
				t.Errorf("lost fields (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFieldsRemovedByAnotherControllerAreNotLost has two controllers that write the same map of a status.
func TestFieldsRemovedByAnotherControllerAreNotLost(t *testing.T) {
	before := parseFields(t, `{"pause":{"clustering":{"by":"a"},"reconciliation":{"by":"b"},"observedAt":1}}`)
	after := parseFields(t, `{"pause":{"clustering":{"by":"a"},"reconciliation":{"by":"b"},"observedAt":2}}`)
	written := buildStatusPatch(before, after).written
	for stands, want := range map[string][]string{
		`{"pause":{"clustering":{"by":"a"},"observedAt":2}}`: nil,
		`{"pause":{"clustering":{"by":"a"}}}`:                {"pause.observedAt"},
	} {
		if diff := cmp.Diff(want, findLostFields("", written, parseFields(t, stands))); diff != "" {
			t.Errorf("lost fields where %s stands (-want +got):\n%s", stands, diff)
		}
	}
}

func TestRemoveField(t *testing.T) {
	for path, want := range map[string]string{
		"a":     `{"b":[{"c":1,"d":2},{"c":3}],"e":{"f":4}}`,
		"b[].c": `{"a":0,"b":[{"d":2},{}],"e":{"f":4}}`,
		"e.f":   `{"a":0,"b":[{"c":1,"d":2},{"c":3}],"e":{}}`,
		"x.y":   `{"a":0,"b":[{"c":1,"d":2},{"c":3}],"e":{"f":4}}`,
		"x[].y": `{"a":0,"b":[{"c":1,"d":2},{"c":3}],"e":{"f":4}}`,
	} {
		fields := parseFields(t, `{"a":0,"b":[{"c":1,"d":2},{"c":3}],"e":{"f":4}}`)
		removeField(fields, path)
		if diff := cmp.Diff(parseFields(t, want), fields); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", path, diff)
		}
	}
}

func TestStatusPatch(t *testing.T) {
	const theirs = `{"type":"Theirs","status":"True","lastTransitionTime":null}`
	for name, row := range map[string]struct {
		before, after, version string
		want                   string
	}{
		"the first report is a merge patch, because there may be no status": {
			`{"index":0}`, `{"index":0,"conditions":[{"type":"A"}]}`, "7",
			`{"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"type":"A"}],"index":0}}`,
		},
		"conditions of other controllers are not changed": {
			`{"conditions":[` + theirs + `,{"type":"A","status":"True"}]}`, `{"conditions":[` + theirs + `,{"type":"A","status":"False"},{"type":"B"}]}`, "7",
			`[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"test","path":"/status/conditions/1/type","value":"A"},` +
				`{"op":"replace","path":"/status/conditions/1","value":{"status":"False","type":"A"}},{"op":"add","path":"/status/conditions/-","value":{"type":"B"}}]`,
		},
		"conditions are removed from the last to the first": {
			`{"conditions":[{"type":"A"},{"type":"B"},{"type":"C"}]}`, `{"conditions":[{"type":"B"}]}`, "",
			`[{"op":"test","path":"/status/conditions/2/type","value":"C"},{"op":"remove","path":"/status/conditions/2","value":null},` +
				`{"op":"test","path":"/status/conditions/0/type","value":"A"},{"op":"remove","path":"/status/conditions/0","value":null}]`,
		},
		"a changed map is patched key by key, and a new map is added as a whole": {
			`{"conditions":[{"type":"A"}],"a":{"b":1,"c":2}}`, `{"conditions":[{"type":"A"}],"a":{"b":2},"x/y":{"z":1}}`, "",
			`[{"op":"add","path":"/status/a/b","value":2},{"op":"remove","path":"/status/a/c","value":null},` +
				`{"op":"add","path":"/status/x~1y","value":{"z":1}}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch := buildStatusPatch(parseFields(t, row.before), parseFields(t, row.after))
			data, _, err := patch.encode(row.version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, string(data)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
	for after, needsNone := range map[string]bool{`"a":{"b":2}`: true, `"a":{"b":1},"x":{"z":1}`: false, `"d":1`: false} {
		const conditions = `{"conditions":[{"type":"A"}],`
		patch := buildStatusPatch(parseFields(t, conditions+`"a":{"b":1}}`), parseFields(t, conditions+after+"}"))
		if patch.needsNoVersion() != needsNone {
			t.Errorf("%s: expected a patch that needs no version: %t, found %t", after, needsNone, !needsNone)
		}
	}
	same := parseFields(t, `{"a":1,"conditions":[`+theirs+`]}`)
	if patch := buildStatusPatch(same, same); len(patch.operations) != 0 || len(patch.written) != 0 {
		t.Errorf("expected no operation when nothing differs, found %+v", patch)
	}
}

func TestSchemaIsTriedAgainAfterAWhile(t *testing.T) {
	var s servedSchema
	at := time.Unix(0, 0)
	written := map[string]any{"a": 1, "b": 2}
	if news := s.learn(written, []string{"a"}, at); len(news) != 1 {
		t.Errorf("expected one field that is newly lost, found %v", news)
	}
	if lost := s.lostFields(at.Add(schemaRetry - 1)); len(lost) != 1 || !s.mayDrop("a", false) || s.mayDrop("b", true) {
		t.Errorf("expected a to be lost and b to be kept, found %v", lost)
	}
	at = at.Add(schemaRetry)
	if lost := s.lostFields(at); len(lost) != 0 || !s.mayDrop("a", false) {
		t.Errorf("expected a to be tried again, found %v", lost)
	}
	if news := s.learn(written, []string{"a"}, at); len(news) != 0 || len(s.lostFields(at)) != 1 {
		t.Errorf("expected a to be lost still and no news, found %v", news)
	}
	s.learn(written, nil, at.Add(schemaRetry))
	if lost, isTried := s.report(); len(lost) != 0 || !isTried || s.mayDrop("a", true) {
		t.Errorf("expected everything to be kept now, found %v", lost)
	}
}

func TestPassesBackOffWhileTheStatusIsDropped(t *testing.T) {
	var s servedSchema
	podRequest := ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}}
	var waits []time.Duration
	for range 4 {
		waits = append(waits, s.backoff(podRequest, "record", true))
	}
	waits = append(waits, s.backoff(podRequest, "another rule", true), s.backoff(podRequest, "another rule", false), s.backoff(podRequest, "another rule", true))
	const ms = time.Millisecond
	if diff := cmp.Diff([]time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 200 * ms, 0, 200 * ms}, waits); diff != "" {
		t.Errorf("intervals (-want +got):\n%s", diff)
	}
	for range 30 {
		waits[0] = s.backoff(podRequest, "record", true)
	}
	if waits[0] != maxUnkeptBackoff {
		t.Errorf("expected at most %s, found %s", maxUnkeptBackoff, waits[0])
	}
}
