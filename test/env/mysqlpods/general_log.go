// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// GeneralLog collects the statements that the manager sends, from the general logs of a cluster's servers.
type GeneralLog struct {
	files  []string
	offset []int64
	users  []map[string]string // By server, the users of its connections.
	// Statements are the manager's statements that have been read so far.
	Statements []Statement
}

// Statement is one command of the manager: Connect, Query or another one.
type Statement struct {
	At            time.Time
	Command, Text string
}

// IsRead reports whether a statement changes nothing. The SET of a session's variables counts as a read, because the
// driver sends it for each new connection, with the variables in random order.
func (s Statement) IsRead() bool {
	beginsSession := strings.HasPrefix(s.Text, "SET ") && strings.Contains(s.Text, "wait_timeout = ")
	return s.Command != "Query" || strings.HasPrefix(s.Text, "select ") || strings.HasPrefix(s.Text, "do sleep(") || beginsSession
}

// StartGeneralLog enables the general logs of all servers. The users of existing connections are unknown.
func (c *PodCluster) StartGeneralLog(t testing.TB) *GeneralLog {
	t.Helper()
	dir := t.TempDir()
	var files []string
	for i := range c.Servers {
		files = append(files, filepath.Join(dir, strconv.Itoa(i)))
		c.MustRun(t, i, "set global general_log_file = '"+files[i]+"'", "set global general_log = on")
	}
	return newGeneralLog(files)
}

// OpenGeneralLog returns the general logs of servers with the settings mysqld.GeneralLogSettings.
func (c *PodCluster) OpenGeneralLog() *GeneralLog {
	var files []string
	for _, s := range c.Servers {
		files = append(files, s.LogPath())
	}
	return newGeneralLog(files)
}

func newGeneralLog(files []string) *GeneralLog {
	l := &GeneralLog{files: files, offset: make([]int64, len(files))}
	for range files {
		l.users = append(l.users, map[string]string{})
	}
	return l
}

// ReadNew reads what the servers have logged since the last call.
func (l *GeneralLog) ReadNew(t testing.TB) {
	t.Helper()
	for i, file := range l.files {
		data, err := os.ReadFile(file)
		testenv.ExpectNoError(t, err)
		text := string(data[l.offset[i]:])
		text = text[:strings.LastIndex(text, "\n")+1]
		l.offset[i] += int64(len(text))
		for line := range strings.Lines(text) {
			l.addLine(i, line)
		}
	}
}

// addLine parses one line: a time, the connection, its command, and the text. Lines of another form continue a text, or begin the log of a
// new process.
func (l *GeneralLog) addLine(server int, line string) {
	if strings.Contains(line, ". started with:") { // The numbers of connections begin again.
		clear(l.users[server])
	}
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
	if l.users[server][connection] == mysqlusers.AdminUser {
		l.Statements = append(l.Statements, Statement{At: at, Command: command, Text: fields[2]})
	}
}
