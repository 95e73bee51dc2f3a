// SPDX-License-Identifier: Apache-2.0

package runner

// A server's settings are the defaults of its sessions, and some of them change which rows a session reads or which
// statements it may run. Every session of a backup or restore therefore begins with the settings below. A comment with
// a version is executed by servers of at least that version.

// maxIdle is the time in seconds after which a server may close an idle session: a day.
const maxIdle = "86400"

// sessionParams returns the settings for this program's own sessions.
func sessionParams() map[string]string {
	return map[string]string{
		"autocommit": "ON", "completion_type": "NO_CHAIN", "transaction_read_only": "OFF", "sql_mode": "''", "sql_safe_updates": "OFF",
		"max_execution_time": "0", "sql_select_limit": "18446744073709551615", "sql_big_selects": "ON",
		"max_sort_length": "1024", // A lower value sorts names by their first bytes only.
		// A session is idle until its next table, and waits while the bucket is slow.
		"wait_timeout": maxIdle, "net_read_timeout": maxIdle, "net_write_timeout": maxIdle,
		// An init_connect of the server runs first, and may have changed these variables.
		"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_results": "utf8mb4",
	}
}

const (
	// readingSession prepares a session of mysqldump. With a lower sql_select_limit, for example, the dump of a table
	// would lack rows.
	readingSession = "set session max_execution_time = 0, sql_select_limit = 18446744073709551615, sql_big_selects = on," +
		" autocommit = on, completion_type = no_chain, transaction_read_only = off," +
		// A client waits while the bucket is slow. A server may close a session that is idle for a second.
		" wait_timeout = " + maxIdle + ", net_read_timeout = " + maxIdle + ", net_write_timeout = " + maxIdle + "," +
		// An init_connect of the server runs first. With a different character set, mysqldump would lose characters.
		" character_set_client = utf8mb4, character_set_connection = utf8mb4, character_set_results = utf8mb4" +
		" /*!80030 , show_gipk_in_create_table_and_information_schema = on */"
	// writingSession prepares a session that loads a dump or binary logs. The source accepted these statements, so
	// settings that reject statements are turned off. One of them is old_alter_table: an ALTER TABLE that copies the
	// table checks the foreign keys of all rows, and the source may contain rows without a parent.
	writingSession = readingSession + ", sql_safe_updates = off, innodb_strict_mode = off, old_alter_table = off" +
		" /*!80013 , sql_require_primary_key = off */ /*!80029 , xa_detach_on_prepare = on */" +
		" /*!80030 , sql_generate_invisible_primary_key = off */ /*!80400 , restrict_fk_on_non_standard_key = off */"
	// replayingSession prepares a session that applies binary logs. A statement that was logged as a statement is
	// executed as a statement, as on the source. If it was logged as rows instead, MySQL would also compute generated
	// columns that do not change.
	replayingSession = writingSession + ", binlog_format = mixed, transaction_isolation = 'REPEATABLE-READ'"
	// outsideBinlogs excludes a session from the binary log.
	outsideBinlogs = ", sql_log_bin = off"
)

// initFlag makes a client begin its session with a statement. The prefix --loose prevents an error from mysqldump of
// MySQL 8.0, which does not support the option.
func initFlag(statement string) string { return "--loose-init-command=" + statement }

// loadFlags returns the flags of the mysql client for loading statements. Without --binary-mode the client would
// convert CR LF to LF, even in routines.
func loadFlags(options *optionFile, session string, more ...string) []string {
	return append([]string{
		options.defaultsFlag(), initFlag(session), "--default-character-set=utf8mb4", "--max-allowed-packet=1G", "--batch", "--binary-mode",
	}, more...)
}
