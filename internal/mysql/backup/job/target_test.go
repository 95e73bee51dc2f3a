// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestTheLockOfARestoreOutlastsALoad uses a server that closes idle sessions after one second, and a load that takes
// two seconds.
func TestTheLockOfARestoreOutlastsALoad(t *testing.T) {
	installation := mysqld.NewInstallation(t, "create user 'moco-admin'@'%' identified by '"+mysqld.AdminPassword+"'; grant all on *.* to 'moco-admin'@'%';\n")
	servers, err := openServers([]string{installation.StartServer(t).Address}, RestoreUser, mysqld.AdminPassword)
	testenv.ExpectNoError(t, err)
	defer closeServers(servers)
	load, err := servers[0].db.Conn(t.Context())
	testenv.ExpectNoError(t, err)
	_, err = load.ExecContext(t.Context(), "set global wait_timeout = 1")
	testenv.ExpectNoError(t, err)
	c, err := servers[0].db.Conn(t.Context())
	testenv.ExpectNoError(t, err)
	lock := restoreTarget{Conn: c, mysqlServer: servers[0]}
	testenv.ExpectNoError(t, lock.lockForRestore(t.Context()))
	_, err = load.ExecContext(t.Context(), "do sleep(2)")
	testenv.ExpectNoError(t, err)
	if executed, err := lock.executedGTIDs(t.Context()); err != nil {
		t.Errorf("expected the session with the lock to be there after the load, found %q, %v", executed, err)
	}
}
