// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"
)

// TestNoPrimaryToShip covers a cluster that copies another server, so all of its instances are read-only.
func TestNoPrimaryToShip(t *testing.T) {
	_, err := findPrimary([]binlogFacts{{index: 0, replicating: true}, {index: 1, replicating: true}})
	for _, want := range []string{"expected one writable instance, found 0", "until spec.replicationSourceSecretName is removed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}
