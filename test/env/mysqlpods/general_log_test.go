// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestGeneralLogDistinguishesTheManager(t *testing.T) {
	l := newGeneralLog([]string{"log"})
	for _, line := range []string{
		"/usr/sbin/mysqld, Version: 9.7.0 (Debian). started with:\n",
		"Time                 Id Command    Argument\n",
		"2026-11-21T01:00:00.000001Z\t   11 Connect\tmoco-admin@127.0.0.1 on  using TCP/IP\n",
		"2026-11-21T01:00:00.000002Z\t   11 Query\tselect @@global.server_uuid, @@global.version,\n",
		" @@global.read_only\n",
		"2026-11-21T01:00:00.000002Z\t   11 Query\tSET autocommit = 1, wait_timeout = 31536000\n",
		"2026-11-21T01:00:00.000003Z\t   12 Connect\tapp@127.0.0.1 on  using TCP/IP\n",
		"2026-11-21T01:00:00.000004Z\t   12 Query\tinsert into t values (1)\n",
		"2026-11-21T01:00:00.000005Z\t   11 Query\t/* torpor */ stop replica io_thread\n",
		"2026-11-21T01:00:00.000006Z\t   11 Quit\t\n",
		"/usr/sbin/mysqld, Version: 9.7.0 (Debian). started with:\n",
		"2026-11-21T01:00:00.000007Z\t   11 Query\tBEGIN\n", // A thread of replication has the number now.
	} {
		l.addLine(0, line)
	}
	var acts []string
	for _, s := range l.Statements {
		if !s.IsRead() {
			acts = append(acts, s.Text)
		}
	}
	testenv.ExpectEqual(t, "acts", []string{"/* torpor */ stop replica io_thread"}, acts)
	last := l.Statements[len(l.Statements)-1]
	testenv.ExpectEqual(t, "the last command", "Quit at 2026-11-21T01:00:00.000006Z", last.Command+" at "+last.At.Format(time.RFC3339Nano))
}
