// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestStatementsOfVersions covers servers of which only 9.7 can be run here.
func TestStatementsOfVersions(t *testing.T) {
	for version, want := range map[string]string{
		"8.0.30": "reset master", "8.0.36-28": "reset master", "8.0.43-log": "reset master", "8.1.0": "reset master",
		"8.2.0": "reset binary logs and gtids", "8.4.0": "reset binary logs and gtids", "8.4.8-commercial": "reset binary logs and gtids",
		"9.0.1": "reset binary logs and gtids", "9.7.4-2": "reset binary logs and gtids", "10.0.0": "reset binary logs and gtids",
		"unknown": "reset binary logs and gtids",
	} {
		testenv.ExpectEqual(t, "statement of "+version, want, DiscardLogsStatement(version))
	}
	testenv.ExpectEqual(t, "the oldest version", Version{8, 0, 30}, OldestVersion())
}

// TestVersionedTextsLeaveNoGap checks that each version from the oldest one on accepts the text that it gets.
func TestVersionedTextsLeaveNoGap(t *testing.T) {
	all := []Version{OldestVersion(), {8, 0, 46}, {8, 1, 0}, {8, 2, 0}, {8, 3, 0}, {8, 4, 0}, {8, 4, 8}, {9, 0, 0}, {9, 7, 4}}
	for p, texts := range listVersionedTexts() {
		for _, v := range all {
			text := textFor(p, v)
			for _, one := range texts {
				isGone := one.removed != Version{} && !v.isOlderThan(one.removed)
				if one.text == text && (v.isOlderThan(one.since) || isGone) {
					t.Errorf("%v refuses %q", v, text)
				}
			}
		}
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
