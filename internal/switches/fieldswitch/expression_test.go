// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"strings"
	"testing"
)

func TestExpressions(t *testing.T) {
	t.Parallel()
	object := parseObject(t, `{spec: {suspend: true, replicas: 3}, status: {conditions: [{type: Ready, status: "True"}]}}`)
	list := make([]any, 2000)
	for i := range list {
		list[i] = int64(i)
	}
	object["list"] = list
	for text, want := range map[string]string{
		"":                                     "true",
		"object.spec.suspend":                  "true",
		"!has(object.spec.paused)":             "true",
		"object.spec.replicas > 3.0":           "false",
		"object.?spec.?nothing.orValue(false)": "false",
		"object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')": "true",
		"object.spec.nothing": "no such key",
		"object.spec":         "expected true or false",
		"'text'":              "expected true or false",
		"object.":             "expected a CEL expression over the variable object",
		"other.spec":          "expected a CEL expression over the variable object",
		"object.list.all(a, object.list.all(b, object.list.all(c, c > -1)))": "cost",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			found := "false"
			e, err := CompileExpression(text)
			if err == nil {
				var is bool
				if is, err = e.EvaluateOn(object); is {
					found = "true"
				}
			}
			if err != nil {
				found = err.Error()
			}
			if found != want && (err == nil || !strings.Contains(found, want)) {
				t.Errorf("expected %q, found %q", want, found)
			}
		})
	}
}
