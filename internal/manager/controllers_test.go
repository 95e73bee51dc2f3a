// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

func TestSelectControllers(t *testing.T) {
	all := "hibernation,sync,machinepools,slumber,workloads,adapters,clustering,provisioning,backup,restart,spaces,deployments,routes,tasks,lrp"
	for list, want := range map[string]string{
		"":                         all,
		"*":                        all,
		"*,-hibernation":           strings.TrimPrefix(all, "hibernation,"),
		"-lrp,*":                   strings.TrimSuffix(all, ",lrp"),
		"backup,hibernation":       "hibernation,backup",
		"-hibernation":             `error: --controllers: expected at least one of`,
		"*,hibernate":              `error: --controllers: expected *, NAME or -NAME of hibernation, sync, machinepools, slumber, workloads, adapters, clustering, provisioning, backup, restart, spaces, deployments, routes, tasks, lrp, found "hibernate"`,
		"hibernation,-hibernation": `error: --controllers: expected hibernation once`,
	} {
		t.Run(list, func(t *testing.T) {
			var entries []string
			if list != "" {
				entries = strings.Split(list, ",")
			}
			enabled, err := SelectControllers(entries)
			found := strings.Join(enabled, ",")
			if err != nil {
				found = "error: " + err.Error()
			}
			if strings.HasPrefix(want, "error: ") && strings.HasPrefix(found, want) {
				return
			}
			if diff := cmp.Diff(want, found); diff != "" {
				t.Errorf("controllers (-want +found):\n%s", diff)
			}
		})
	}
}

// TestCommandsNameExistingControllers checks that the groups of controllers named by kubectl torpor exist.
func TestCommandsNameExistingControllers(t *testing.T) {
	t.Parallel()
	for _, k := range kinds.ListBuiltIn() {
		for _, name := range k.Controllers() {
			if !slices.Contains(ControllerNames(), name) {
				t.Errorf("expected a group of controllers of %s, found %q", k.Name(), name)
			}
		}
	}
}
