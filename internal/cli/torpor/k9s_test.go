// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// k9sPlugin is a plugin in the plugins.yaml of k9s (https://k9scli.io/topics/plugins).
type k9sPlugin struct {
	ShortCut    string   `json:"shortCut"`
	Description string   `json:"description"`
	Confirm     bool     `json:"confirm"`
	Dangerous   bool     `json:"dangerous"`
	Scopes      []string `json:"scopes"`
	Command     string   `json:"command"`
	Background  bool     `json:"background"`
	Args        []string `json:"args"`
}

// TestK9sPluginsMatchTheCommands parses each command line of the example, for each kind, as the plugin itself would.
func TestK9sPluginsMatchTheCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "k9s", "plugins.yaml"))
	testenv.ExpectNoError(t, err)
	var file struct {
		Plugins map[string]k9sPlugin `json:"plugins"`
	}
	testenv.ExpectNoError(t, yaml.UnmarshalStrict(text, &file))
	verbs, keys := map[string]map[string]bool{}, map[string]string{}
	for name, plugin := range file.Plugins {
		if plugin.ShortCut == "" || plugin.Description == "" || len(plugin.Scopes) == 0 {
			t.Errorf("%s: expected a shortcut, a description and scopes, found %+v", name, plugin)
		}
		for _, scope := range plugin.Scopes {
			if other := keys[plugin.ShortCut+" "+scope]; other != "" {
				t.Errorf("%s: expected a shortcut of its own for %s, found that %s has %s", name, scope, other, plugin.ShortCut)
			}
			keys[plugin.ShortCut+" "+scope] = name
			k, err := findBuiltIn(scope)
			if err != nil || k.Resource() != scope {
				t.Errorf("%s: expected a resource that can be stopped, found %s: %v", name, scope, err)
				continue
			}
			verb := expectK9sCommand(t, name, plugin, k)
			if verbs[verb] == nil {
				verbs[verb] = map[string]bool{}
			}
			verbs[verb][scope] = true
			if changes := verb == "stop" || verb == "start"; plugin.Confirm != changes || plugin.Dangerous != (verb == "stop") {
				t.Errorf("%s: expected that k9s asks before a change, and marks a stop as dangerous, found %+v", name, plugin)
			}
		}
	}
	for _, verb := range []string{"stop", "start", "why", "status"} {
		for _, k := range kinds.ListBuiltIn() {
			if !verbs[verb][k.Resource()] {
				t.Errorf("%s: expected a shortcut for %s, found none; add it to the scopes in examples/k9s/plugins.yaml", verb, k.Resource())
			}
		}
	}
}

// expectK9sCommand checks the command line of a plugin for an object of a kind, and returns its verb.
func expectK9sCommand(t *testing.T, name string, plugin k9sPlugin, k kinds.Kind) string {
	t.Helper()
	if plugin.Command != "sh" || len(plugin.Args) != 2 || plugin.Args[0] != "-c" {
		t.Fatalf("%s: expected sh -c with one command line, found %s %q", name, plugin.Command, plugin.Args)
	}
	line, isPaged := strings.CutSuffix(plugin.Args[1], " 2>&1 | less -R")
	line = strings.NewReplacer(
		"$RESOURCE_NAME", k.Resource(), "$RESOURCE_GROUP", k.GVK().Group, "$NAMESPACE", "ns", "$NAME", "x", "$CONTEXT", "east", `"`, "",
	).Replace(line)
	words := strings.Fields(line)
	if !isPaged || strings.ContainsAny(line, "$|;&") || len(words) < 3 || words[0] != "kubectl" || words[1] != "torpor" {
		t.Fatalf("%s: expected kubectl torpor in a pager, without unknown variables, found %q", name, plugin.Args[1])
	}
	a := &commands{Streams: Streams{Out: io.Discard, Err: io.Discard}, clock: clocktesting.NewFakePassiveClock(time.Now())}
	cmd, args, err := a.newRootCommand().Find(words[2:])
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, cmd.ParseFlags(args))
	namespace, context := cmd.Flags().Lookup("namespace").Value.String(), cmd.Flags().Lookup("context").Value.String()
	if namespace != "ns" || context != "east" {
		t.Errorf("%s: expected the namespace and the context of k9s, found %q and %q", name, namespace, context)
	}
	parsed, err := parseArguments(cmd.Flags().Args())
	testenv.ExpectNoError(t, err)
	if cmd.Name() == "status" {
		return cmd.Name()
	}
	if len(parsed.objects) != 1 || parsed.objects[0].name != "x" || !k.HasName(parsed.objects[0].kindName) {
		t.Errorf("%s: expected the selected %s, found %q", name, k.Resource(), cmd.Flags().Args())
	}
	if cmd.Flags().Lookup("part") != nil {
		part, err := cmd.Flags().GetString("part")
		testenv.ExpectNoError(t, err)
		chosen := target{kind: k}
		testenv.ExpectNoError(t, (&verbCommand{verb: verb(cmd.Name()), part: part}).choosePart(&chosen))
	}
	return cmd.Name()
}
