// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

func observeFindsAllPages(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 12)
	machines, err := c.Actuator().Observe(t.Context(), c.Target())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	var found []string
	for _, m := range machines {
		found = append(found, m.ID)
		if m.State != actuator.Running {
			t.Errorf("machine %s is %s, want running", m.ID, m.State)
		}
	}
	if diff := cmp.Diff(c.ids, found); diff != "" {
		t.Errorf("machines in order (-want +got):\n%s", diff)
	}
}

func otherClustersAreInvisible(t *testing.T, newCloud func(*testing.T) Cloud) {
	one, other := newCluster(t, newCloud, 2), newCluster(t, newCloud, 3)
	if one.Target().InfraID == other.Target().InfraID {
		t.Fatal("the test's clouds share an infraID")
	}
	one.expectSettled(actuator.Running, nil)
	other.expectSettled(actuator.Running, nil)
}

func emptyClusterIsNoError(t *testing.T, newCloud func(*testing.T) Cloud) {
	if found := newCluster(t, newCloud, 0).observeStates(); len(found) > 0 {
		t.Errorf("machines of an empty cluster: %v", found)
	}
}

func emptyInfraIDIsRefused(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	target.InfraID = ""
	machines, err := c.Actuator().Observe(t.Context(), target)
	if err == nil || len(machines) > 0 {
		t.Errorf("observe without an infraID: %v and error %v, want an error only", machines, err)
	}
}

func unknownMachineIsNotFound(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	named := slices.Concat(c.ids[:1], []string{unknownIDLike(c.ids)}, c.ids[1:])
	_ = c.expectError(Stop, c.Target(), actuator.NotFound, named...)
	c.expectSettled(actuator.Stopped, nil)
	_ = c.expectError(Start, c.Target(), actuator.NotFound, named...)
	c.expectSettled(actuator.Running, nil)
}

// unknownIDLike returns an id of the same form that is not among the ids.
func unknownIDLike(ids []string) string {
	// A malformed id would be refused for its form.
	stem := ids[0][:len(ids[0])-1]
	for _, last := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		if !slices.Contains(ids, stem+last) {
			return stem + last
		}
	}
	return stem
}
