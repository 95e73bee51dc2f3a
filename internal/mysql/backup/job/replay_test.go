// SPDX-License-Identifier: Apache-2.0

package job

import "testing"

func TestLeftOutStatements(t *testing.T) {
	for statement, want := range map[string]bool{
		"ALTER USER 'moco-admin'@'%' IDENTIFIED WITH 'caching_sha2_password' AS 'x'": true,
		"/* ApplicationName=x */ GRANT SELECT ON *.* TO 'moco-readonly'@'%'":         true,
		"CREATE USER 'moco-admin2'@'%' IDENTIFIED WITH 'x'":                          false,
		"CREATE USER 'app'@'%' IDENTIFIED WITH 'x'":                                  false,
		"create table t (v varchar(20) default 'moco-admin')":                        false,
		"ALTER USER 'root'@'%' IDENTIFIED WITH 'caching_sha2_password' AS 'x'":       true,
		"drop user if exists app, root@'%'":                                          true,
		"drop user root":                                                             true,
		"revoke `root` from app":                                                     true,
		"rename user root to boss":                                                   true,
		"GRANT SELECT ON *.* TO `root`@`%`":                                          true,
		"set default role reader to root;":                                           true,
		"GRANT SELECT ON `root`.* TO 'app'@'%'":                                      false,
		"revoke select on root.t from app":                                           false,
		"revoke select on app.root from app":                                         false,
		"/* root */ drop user app":                                                   false,
		"drop user 'root-cause'@'%', roots":                                          false,
		"ALTER USER 'app'@'%' COMMENT 'root'":                                        false,
		"BEGIN":                                                                      false,
		"":                                                                           false,
	} {
		if found := (RestoreOptions{}).isLeftOut(statement); found != want {
			t.Errorf("%s: expected %v, found %v", statement, want, found)
		}
	}
	if !(RestoreOptions{Users: []string{"a"}}).isLeftOut("DROP USER 'app'@'%'") {
		t.Error("expected statements about accounts to be left out if only some were to be restored")
	}
}
