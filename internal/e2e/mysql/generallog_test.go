// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

// generalLog is what the servers themselves wrote down of what they were sent.
type generalLog struct {
	files  []string
	offset []int64
	users  []map[string]string // By server: the user of a connection.
	// said is what the manager has sent so far.
	said []statement
}

// statement is one command of the manager: Connect, Query or another.
type statement struct {
	at            time.Time
	command, text string
}

// looks says whether a statement only observes.
func (s statement) looks() bool {
	return s.command != "Query" || strings.HasPrefix(s.text, "select @@global.server_uuid,")
}

// startLog turns the general logs on. Connections that exist already are not known.
func startLog(t *testing.T, c *mysqlpods.PodCluster) *generalLog {
	t.Helper()
	l := &generalLog{offset: make([]int64, len(c.Servers))}
	dir := t.TempDir()
	for i := range c.Servers {
		file := filepath.Join(dir, fmt.Sprint(i))
		mustRun(t, c, i, "set global general_log_file = '"+file+"'", "set global general_log = on")
		l.files, l.users = append(l.files, file), append(l.users, map[string]string{})
	}
	return l
}

// readNew reads what is new.
func (l *generalLog) readNew(t *testing.T) {
	t.Helper()
	for i, file := range l.files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data[l.offset[i]:])
		text = text[:strings.LastIndex(text, "\n")+1]
		l.offset[i] += int64(len(text))
		for line := range strings.Lines(text) {
			l.addLine(i, line)
		}
	}
}

// addLine reads one line: a time, the connection and its command, and the text. Other lines continue a text.
func (l *generalLog) addLine(server int, line string) {
	fields := strings.SplitN(strings.TrimRight(line, "\n"), "\t", 3)
	at, err := time.Parse(time.RFC3339Nano, fields[0])
	if err != nil || len(fields) < 3 {
		return
	}
	words := strings.Fields(fields[1])
	if len(words) < 2 {
		return
	}
	connection, command := words[0], words[1]
	if command == "Connect" {
		l.users[server][connection], _, _ = strings.Cut(fields[2], "@")
	}
	if l.users[server][connection] == "moco-admin" {
		l.said = append(l.said, statement{at: at, command: command, text: fields[2]})
	}
}

// lastStatement returns when the manager last sent something; zero if it never did.
func (l *generalLog) lastStatement() time.Time {
	var last time.Time
	for _, s := range l.said {
		if s.at.After(last) {
			last = s.at
		}
	}
	return last
}

// countSince counts the statements from a moment on, and those of them that do not only look.
func (l *generalLog) countSince(from time.Time) (all, acts int) {
	for _, s := range l.said {
		if s.at.Before(from) || s.command != "Query" {
			continue
		}
		all++
		if !s.looks() {
			acts++
		}
	}
	return all, acts
}

func TestGeneralLogTellsTheManagerApart(t *testing.T) {
	l := &generalLog{users: []map[string]string{{}}}
	for _, line := range []string{
		"/usr/sbin/mysqld, Version: 9.7.0 (Debian). started with:\n",
		"Time                 Id Command    Argument\n",
		"2026-11-21T01:00:00.000001Z\t   11 Connect\tmoco-admin@127.0.0.1 on  using TCP/IP\n",
		"2026-11-21T01:00:00.000002Z\t   11 Query\tselect @@global.server_uuid, @@global.version,\n",
		" @@global.read_only\n",
		"2026-11-21T01:00:00.000003Z\t   12 Connect\tapp@127.0.0.1 on  using TCP/IP\n",
		"2026-11-21T01:00:00.000004Z\t   12 Query\tinsert into t values (1)\n",
		"2026-11-21T01:00:00.000005Z\t   11 Query\t/* torpor */ stop replica io_thread\n",
		"2026-11-21T01:00:00.000006Z\t   11 Quit\t\n",
	} {
		l.addLine(0, line)
	}
	all, acts := l.countSince(time.Time{})
	if all != 2 || acts != 1 {
		t.Errorf("expected two statements of the manager, one of which acts, found %d and %d in %v", all, acts, l.said)
	}
	if got := l.lastStatement().Format(time.RFC3339Nano); got != "2026-11-21T01:00:00.000006Z" {
		t.Errorf("expected the last command at its time, found %s", got)
	}
}
