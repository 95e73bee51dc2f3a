// SPDX-License-Identifier: Apache-2.0

package argocd

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/test/outside/observers/statuses"
)

const customizations = "../../../../config/argocd/argocd-cm.yaml"

func TestHealth(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"a new cluster": "Progressing: nothing is reported yet", "a running cluster": "Healthy: runs", "a stopping cluster": "Progressing: stops",
		"a hibernating cluster": "Suspended: sleeps", "a cluster that fails to stop": "Degraded: i-1 does not stop",
		"a healthy database": "Healthy: works", "a database without a primary": "Degraded: no primary", "a database with clustering stopped": "Suspended: stopped",
		"a running app": "Healthy: runs", "a stopped app": "Suspended: stopped", "a starting app": "Progressing: starts", "an app with an unobserved change": "Progressing: no controller has acted on the request",
		"a cluster with an unobserved stop":  "Progressing: no controller has acted on the request",
		"a database with an unobserved stop": "Progressing: no controller has acted on the request",
		"a Slumber whose objects are asleep": "Healthy: asleep", "a stalled Slumber": "Degraded: a cluster does not wake",
		"a ClusterSlumber that falls asleep": "Progressing: wave all waits",
		"a running StopAdapter":              "Healthy: runs", "a StopAdapter of a kind that is not installed": "Suspended: not served", "a new StopAdapter": "Progressing: being found out", "a StopAdapter without rights": "Degraded: grant a role",
	}
	for name, obj := range listStatuses(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			health := runLua(t, readCustomization(t, "health", obj), obj)
			message, _ := health["message"].(string)
			if diff := cmp.Diff(want[name], fmt.Sprint(health["status"], ": ", message)); diff != "" {
				t.Errorf("health (-want +found):\n%s", diff)
			}
		})
	}
}

// actions are the actions of a kind, as Argo CD reads them.
type actions struct {
	Discovery   string `json:"discovery.lua"`
	Definitions []struct {
		Name   string `json:"name"`
		Action string `json:"action.lua"`
	} `json:"definitions"`
}

// TestActionsStopAndStart performs the actions that each object offers, in both directions.
func TestActionsStopAndStart(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"a running cluster":                  {"hibernate", "resume"},
		"a running app":                      {"stop", "start"},
		"a healthy database":                 {"stop-clustering", "start-clustering"},
		"a hibernating cluster":              {"resume", "hibernate"},
		"a stopped app":                      {"start", "stop"},
		"a Slumber whose objects are asleep": {"suspend", "unsuspend"},
		"a ClusterSlumber that falls asleep": {"suspend", "unsuspend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := listStatuses(t)[name]
			var of actions
			if err := yaml.UnmarshalStrict([]byte(readCustomization(t, "actions", obj)), &of); err != nil {
				t.Fatal(err)
			}
			for _, action := range want {
				offered := runLua(t, of.Discovery, obj)
				var enabled []string
				for _, d := range of.Definitions {
					if state, _ := offered[d.Name].(map[string]any); state["disabled"] == false {
						enabled = append(enabled, d.Name)
					}
					if d.Name == action {
						obj = &unstructured.Unstructured{Object: runLua(t, d.Action, obj)}
					}
				}
				if diff := cmp.Diff([]string{action}, enabled); diff != "" {
					t.Errorf("actions (-want +offered):\n%s", diff)
				}
			}
		})
	}
}

func TestStartActionRemovesTheReason(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a hibernating cluster", "a stopped app", "a database with clustering stopped"} {
		obj := listStatuses(t)[name]
		var of actions
		if err := yaml.UnmarshalStrict([]byte(readCustomization(t, "actions", obj)), &of); err != nil {
			t.Fatal(err)
		}
		started := &unstructured.Unstructured{Object: runLua(t, of.Definitions[1].Action, obj)}
		if left := started.GetAnnotations(); len(left) != 0 {
			t.Errorf("%s: expected no annotation of the stop, found %v", name, left)
		}
	}
}

func listStatuses(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	all, err := statuses.List()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readCustomization(t *testing.T, what string, obj *unstructured.Unstructured) string {
	t.Helper()
	text, err := os.ReadFile(customizations)
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &configMap); err != nil {
		t.Fatal(err)
	}
	key := "resource.customizations." + what + "." + obj.GroupVersionKind().Group + "_" + obj.GetKind()
	if configMap.Data[key] == "" {
		t.Fatalf("expected the key %s, found none", key)
	}
	return configMap.Data[key]
}

// runLua runs a script as Argo CD does: with the object as obj, and with the libraries that have no side
// effects.
func runLua(t *testing.T, script string, obj *unstructured.Unstructured) map[string]any {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	state.SetGlobal("obj", toLua(state, obj.Object))
	if err := state.DoString(script); err != nil {
		t.Fatalf("%v\n%s", err, strings.TrimSpace(script))
	}
	answer, ok := fromLua(state.Get(-1)).(map[string]any)
	if !ok {
		t.Fatalf("expected a table, found %v", state.Get(-1))
	}
	return answer
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for k, v := range value {
			table.RawSetString(k, toLua(state, v))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, v := range value {
			table.Append(toLua(state, v))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	default:
		return lua.LNil
	}
}

func fromLua(value lua.LValue) any {
	switch value := value.(type) {
	case *lua.LTable:
		if n := value.Len(); n > 0 {
			var list []any
			value.ForEach(func(_, v lua.LValue) { list = append(list, fromLua(v)) })
			return list
		}
		table := map[string]any{}
		value.ForEach(func(k, v lua.LValue) { table[k.String()] = fromLua(v) })
		return table
	case lua.LString:
		return string(value)
	case lua.LBool:
		return bool(value)
	case lua.LNumber:
		return float64(value)
	default:
		return nil
	}
}
