// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"fmt"
	"testing"

	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestSimulatedServer checks that the driver accepts the simulation as a server.
func TestSimulatedServer(t *testing.T) {
	s := NewSimulatedServers()
	const cluster = 249
	s.StartServers(t, cluster, "a-host")
	db := OpenSessionAt(t, fmt.Sprintf("%s:%d", SimulatedAddress(cluster, 1), mysqld.AdminPort), AppUser, "anything")
	defer func() { _ = db.Close() }() // The test has ended.
	if _, err := db.ExecContext(t.Context(), "set global something = on"); err != nil {
		t.Error(err)
	}
	var id int
	if err := db.QueryRowContext(t.Context(), "select connection_id()").Scan(&id); err != nil || id != 1 {
		t.Errorf("expected the connection 1, found %d (%v)", id, err)
	}
	if got := s.Statements.Load(); got != 2 {
		t.Errorf("expected two statements, found %d", got)
	}
}
