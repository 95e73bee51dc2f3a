// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// buildEvent builds a binary log event.
func buildEvent(kind byte, body ...byte) []byte {
	const headerSize = 19
	raw := make([]byte, headerSize)
	raw[4] = kind
	binary.LittleEndian.PutUint32(raw[9:], uint32(headerSize+len(body)))
	return slices.Concat(raw, body)
}

// buildTransaction builds a transaction from a server whose UUID consists of zeros.
func buildTransaction(number int64) []byte {
	const gtidEvent, size = 33, 19 + 50 + 19 + 20
	head := make([]byte, 17, 50)
	head = binary.LittleEndian.AppendUint64(head, uint64(number))
	head = append(head, make([]byte, 17+7)...)
	return slices.Concat(buildEvent(gtidEvent, append(head, size)...), buildEvent(binlogparser.QueryEvent, make([]byte, 20)...))
}

// TestASegmentThatHasGrownIsReadUntilItsOldEnd covers a segment that was replaced with a longer one after the restore
// had read its header.
func TestASegmentThatHasGrownIsReadUntilItsOldEnd(t *testing.T) {
	planned, err := gtid.Parse("00000000-0000-0000-0000-000000000000:1-2")
	testenv.ExpectNoError(t, err)
	old := slices.Concat([]byte(binlogparser.FileMagic), buildTransaction(1), buildTransaction(2))
	var passed bytes.Buffer
	var visited gtid.Set
	f := transactionFilter{
		from: bytes.NewReader(append(old, buildTransaction(3)...)), to: &passed, wanted: planned, until: time.Now(),
		visit: func(head binlogparser.TransactionHead, _ string) bool {
			visited = visited.Union(head.GTID)
			return true
		},
	}
	testenv.ExpectNoError(t, f.run())
	if !visited.Equal(planned) || !bytes.Equal(passed.Bytes(), old) {
		t.Errorf("expected the transactions %s as they were, found %s in %d bytes instead of %d", planned, visited, passed.Len(), len(old))
	}
}

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
