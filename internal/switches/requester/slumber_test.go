// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	by      = torporv1alpha1.RequestedByAnnotation
	foreign = "example.com/a"
)

// annotations returns a map of alternating names and values.
func annotations(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func expectNext(t *testing.T, want, found map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("annotations (-want +found):\n%s", diff)
	}
}

func TestNextOfSlumber(t *testing.T) {
	for name, row := range map[string]struct {
		isChanged          bool
		before, sent, want map[string]string
	}{
		"the author of a new or changed Slumber is recorded":                    {true, nil, annotations(foreign, "a"), annotations(foreign, "a", by, "alice")},
		"a change to the spec overwrites a forged author":                       {true, annotations(by, "bob"), annotations(by, "the-ceo"), annotations(by, "alice")},
		"an edited author is restored":                                          {false, annotations(by, "bob"), annotations(by, "the-ceo"), annotations(by, "bob")},
		"a forged author is removed by a request that does not change the spec": {false, nil, annotations(by, "the-ceo"), annotations()},
	} {
		t.Run(name, func(t *testing.T) {
			expectNext(t, row.want, NextOfSlumber(Request{User: "alice", Version: "7", Before: row.before, Sent: row.sent}, row.isChanged))
		})
	}
}
