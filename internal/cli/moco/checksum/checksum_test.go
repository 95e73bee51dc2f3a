// SPDX-License-Identifier: Apache-2.0

package checksum

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/test/env/mysqld"
)

const readers = `create user 'moco-readonly'@'%' identified by 'r';
grant select on *.* to 'moco-readonly'@'%';
create user 'root'@'%' identified by 'root';
grant all on *.* to 'root'@'%';
`

// TestChecksum compares real servers through the real mysql client, which does not run in a Pod.
func TestChecksum(t *testing.T) {
	t.Parallel()
	bed := mysqld.NewInstallation(t, readers)
	servers := []*mysqld.Server{bed.StartServer(t), bed.StartServer(t), bed.StartServer(t)}
	transactions := 0
	// everywhere runs each statement on all servers, as one transaction with the same GTID.
	everywhere := func(statements ...string) {
		transactions++
		for i, s := range servers {
			statement := statements[min(i, len(statements)-1)]
			execSQL(t, s, fmt.Sprintf("set global super_read_only = off; set global read_only = off; set gtid_next = '8e349184-bc14-11e3-8d4c-0800272864ba:%d'; %s", transactions, statement))
		}
	}
	everywhere("create database app")
	everywhere("create table app.`odd ``name` (id int primary key, v varchar(20))")
	everywhere("insert into app.`odd ``name` values (1, 'first')")
	out, err := compareServers(t, servers)
	if want := "compared 1 tables of 3 instances at 8e349184-bc14-11e3-8d4c-0800272864ba:1-3\n"; err != nil || out != want {
		t.Errorf("equal rows: expected %q, found %q and %v", want, out, err)
	}

	t.Log("The GTID sets are equal, but one server lacks a row, because an empty transaction has its GTID.")
	everywhere("insert into app.`odd ``name` values (2, 'second')", "begin; commit", "insert into app.`odd ``name` values (2, 'second')")
	if out, err = compareServers(t, servers); err == nil || !strings.Contains(out, "`app`.`odd ``name`: differs: instance 0 has ") {
		t.Errorf("expected that the table differs, found %q and %v", out, err)
	}

	t.Log("Tables and instances that cannot be compared are reported.")
	everywhere("create table app.other (id int) engine = MyISAM", "begin; commit")
	if out, err = compareServers(t, servers); err == nil || !strings.Contains(out, "`app`.`other`: cannot be compared: its engine is MyISAM\n") {
		t.Errorf("expected that another engine cannot be compared, found %q and %v", out, err)
	}
	execSQL(t, servers[2], "set gtid_next = '8e349184-bc14-11e3-8d4c-0800272864ba:99'; begin; commit")
	if _, err = compareServers(t, servers); err == nil || !strings.Contains(err.Error(), "expected all instances at one GTID set, found ") {
		t.Errorf("expected that different GTIDs cannot be compared, found %v", err)
	}
	servers[1].KillAtOnce(t)
	if _, err = compareServers(t, servers); err == nil || !strings.Contains(err.Error(), "cannot compare: instance 1: ") {
		t.Errorf("expected that an instance that is down cannot be compared, found %v", err)
	}
}

func compareServers(t *testing.T, servers []*mysqld.Server) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p := TableComparison{Out: &out, Clock: clock.RealClock{}, RunMysql: func(ctx context.Context, i int, args []string, in io.Reader, out io.Writer) error {
		line := append(servers[i].ClientCommand("moco-readonly", "r"), args...)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Stdout, cmd.Stderr = out, t.Output()
		stdin, err := cmd.StdinPipe() // With a separate copy, Wait does not wait for more input.
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(stdin, in) }() // The copy ends with the input.
		return cmd.Run()
	}}
	err := p.CompareInstances(t.Context(), len(servers))
	return out.String(), err
}

func execSQL(t *testing.T, s *mysqld.Server, statements string) {
	t.Helper()
	line := s.ClientCommand("root", "root")
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(statements)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", statements, err, out)
	}
}
