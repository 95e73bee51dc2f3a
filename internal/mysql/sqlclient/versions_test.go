// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestStatementsOfVersions covers several server versions. Only 9.7 is available for tests with a real server.
func TestStatementsOfVersions(t *testing.T) {
	for version, want := range map[string]string{
		"8.0.30": "reset master", "8.0.36-28": "reset master", "8.0.43-log": "reset master", "8.1.0": "reset master",
		"8.2.0": "reset binary logs and gtids", "8.4.0": "reset binary logs and gtids", "8.4.8-commercial": "reset binary logs and gtids",
		"9.0.1": "reset binary logs and gtids", "9.7.4-2": "reset binary logs and gtids", "10.0.0": "reset binary logs and gtids",
		"unknown": "reset binary logs and gtids",
	} {
		testenv.ExpectEqual(t, "statement of "+version, want, DiscardLogsStatement(version))
	}
}

func TestDiscardedTransactionsAreGone(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	server := openServer(t, bed.StartServer(t))
	failOnError(t, server.execAll(t.Context(), "write", []string{"set global super_read_only = off", "create schema app"}))
	before := readFacts(t, server)
	failOnError(t, server.DiscardTransactions(t.Context(), before.Version))
	if after := readFacts(t, server); before.Executed == "" || after.Executed != "" {
		t.Errorf("expected transactions before and none after, found %q and %q", before.Executed, after.Executed)
	}
}
