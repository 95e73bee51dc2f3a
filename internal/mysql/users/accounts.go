// SPDX-License-Identifier: Apache-2.0

// Package users lists the MySQL accounts that every instance has: the keys of their passwords, their grants, and the
// statements that create them. It does no I/O.
package users

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// Names of the accounts.
const (
	AdminUser       = "moco-admin"
	AgentUser       = "moco-agent"
	ReplicationUser = "moco-repl"
	DonorUser       = "moco-clone-donor"
	ExporterUser    = "moco-exporter"
	BackupUser      = "moco-backup"
	ReadOnlyUser    = "moco-readonly"
	WritableUser    = "moco-writable"
)

// MySQLAccount is an account that every instance has.
type MySQLAccount struct {
	Name string
	// PasswordKey is the key of the password in the cluster's Secret.
	PasswordKey string
	// IsSystem is true for accounts that Torpor uses and clients do not. The privilege SYSTEM_USER protects them from
	// changes by other accounts.
	IsSystem bool
	// needsTLS is true if the account logs in over the network. It must use TLS once every server has a certificate.
	needsTLS bool
	// grants lists the privileges on *.*; grantSuffix is the end of the statement.
	grants, grantSuffix string
	// exempt lists the privileges that the account lacks in exemptSchemas. With write access there it could make itself
	// an administrator, and with read access it could read the password hashes of other accounts.
	exempt        string
	exemptSchemas []string
}

// ListAccounts returns the accounts. An account that uses the admin port needs SERVICE_CONNECTION_ADMIN.
func ListAccounts() []MySQLAccount {
	return []MySQLAccount{
		{Name: AdminUser, PasswordKey: "ADMIN_PASSWORD", IsSystem: true, needsTLS: true, grants: "ALL PRIVILEGES", grantSuffix: " WITH GRANT OPTION"},
		{Name: AgentUser, PasswordKey: "AGENT_PASSWORD", IsSystem: true, grants: "RELOAD, SELECT, REPLICATION CLIENT, BACKUP_ADMIN, CLONE_ADMIN, SERVICE_CONNECTION_ADMIN, SYSTEM_USER"},
		{Name: ReplicationUser, PasswordKey: "REPLICATION_PASSWORD", IsSystem: true, needsTLS: true, grants: "REPLICATION SLAVE, REPLICATION CLIENT, SYSTEM_USER"},
		{Name: DonorUser, PasswordKey: "CLONE_DONOR_PASSWORD", IsSystem: true, needsTLS: true, grants: "BACKUP_ADMIN, SERVICE_CONNECTION_ADMIN, SYSTEM_USER"},
		{Name: ExporterUser, PasswordKey: "EXPORTER_PASSWORD", IsSystem: true, grants: "PROCESS, REPLICATION CLIENT, SELECT, SYSTEM_USER", exempt: "SELECT", exemptSchemas: []string{"mysql"}},
		{Name: BackupUser, PasswordKey: "BACKUP_PASSWORD", IsSystem: true, needsTLS: true, grants: "EVENT, LOCK TABLES, PROCESS, RELOAD, REPLICATION CLIENT, REPLICATION SLAVE, SELECT, " +
			"SHOW DATABASES, SHOW VIEW, TRIGGER, BACKUP_ADMIN, SHOW_ROUTINE, SERVICE_CONNECTION_ADMIN, SYSTEM_USER"},
		{Name: ReadOnlyUser, PasswordKey: "READONLY_PASSWORD", grants: "PROCESS, REPLICATION CLIENT, REPLICATION SLAVE, SELECT, SHOW DATABASES, SHOW VIEW"},
		{Name: WritableUser, PasswordKey: "WRITABLE_PASSWORD", exempt: writing, exemptSchemas: []string{"mysql", "sys"}, grants: writing + ", CREATE ROLE, CREATE USER, DROP ROLE, EXECUTE, LOCK TABLES, PROCESS, " +
			"REPLICATION CLIENT, REPLICATION SLAVE, SELECT, SHOW DATABASES, SHOW VIEW", grantSuffix: " WITH GRANT OPTION"},
	}
}

// writing lists the privileges for changing a database.
const writing = "ALTER, ALTER ROUTINE, CREATE, CREATE ROUTINE, CREATE TEMPORARY TABLES, CREATE VIEW, DELETE, DROP, EVENT, INDEX, INSERT, REFERENCES, TRIGGER, UPDATE"

// PasswordKeyOf returns the key of an account's password, or "" if there is no account with the name.
func PasswordKeyOf(name string) string {
	for _, a := range ListAccounts() {
		if a.Name == name {
			return a.PasswordKey
		}
	}
	return ""
}

// Names returns the names of all accounts.
func Names() []string {
	var names []string
	for _, a := range ListAccounts() {
		names = append(names, a.Name)
	}
	return names
}

// SystemUsers returns the accounts that clients do not use. Disconnecting clients does not kill the sessions of these
// accounts.
func SystemUsers() []string {
	var names []string
	for _, a := range ListAccounts() {
		if a.IsSystem {
			names = append(names, a.Name)
		}
	}
	return names
}

// MissingPasswordKeys returns the keys for which a cluster's Secret has no password, sorted.
func MissingPasswordKeys(passwords map[string][]byte) []string {
	var missing []string
	for _, a := range ListAccounts() {
		if len(passwords[a.PasswordKey]) == 0 {
			missing = append(missing, a.PasswordKey)
		}
	}
	slices.Sort(missing)
	return missing
}

// NeedsTLS reports whether an account logs in over the network. Such an account must use TLS once every server has a
// certificate.
func NeedsTLS(name string) bool {
	return slices.ContainsFunc(ListAccounts(), func(a MySQLAccount) bool { return a.Name == name && a.needsTLS })
}

// BuildStatements returns the statements that create the accounts, or grant missing privileges to existing accounts.
// Existing accounts keep their passwords. Each statement is one line, as --init-file requires.
func BuildStatements(passwords map[string][]byte, requireTLS bool) []string {
	// Without this setting, the server does not support exemptions for schemas.
	statements := []string{"SET GLOBAL partial_revokes = ON"}
	var users []string
	for _, a := range ListAccounts() {
		users = append(users, fmt.Sprintf("'%s'@'%%'", a.Name))
		statements = append(statements,
			fmt.Sprintf("CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s'", a.Name, EscapePassword(passwords[a.PasswordKey])),
			fmt.Sprintf("GRANT %s ON *.* TO '%s'@'%%'%s", a.grants, a.Name, a.grantSuffix))
		for _, schema := range a.exemptSchemas { // A grant on *.* removes earlier exemptions, so the exemptions follow it.
			statements = append(statements, fmt.Sprintf("REVOKE IF EXISTS %s ON %s.* FROM '%s'@'%%'", a.exempt, schema, a.Name))
		}
	}
	// Only Torpor's rotation replaces the passwords. If default_password_lifetime expired them, Torpor could no longer
	// log in.
	statements = append(statements, "ALTER USER "+strings.Join(users, ", ")+" PASSWORD EXPIRE NEVER")
	for _, a := range ListAccounts() {
		if a.needsTLS {
			statements = append(statements, fmt.Sprintf("ALTER USER '%s'@'%%' REQUIRE %s", a.Name, map[bool]string{true: "SSL", false: "NONE"}[requireTLS]))
		}
	}
	statements = append(statements, fmt.Sprintf("GRANT PROXY ON ''@'' TO '%s'@'%%' WITH GRANT OPTION", AdminUser))
	return append(statements, fmt.Sprintf(`ALTER USER '%s'@'%%' ATTRIBUTE '{"%s": "%s"}'`, AdminUser, VersionAttribute, hashStatements(statements)))
}

// startSession is the first statement of the --init-file with which a server starts. It keeps the later statements out
// of the binary log, and makes them independent of settings that users choose for clients.
const startSession = "SET SESSION sql_log_bin = OFF, SESSION autocommit = ON, SESSION transaction_read_only = OFF, SESSION completion_type = 0, " +
	"SESSION sql_big_selects = ON, SESSION max_execution_time = 0, SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"

// BuildTakeOverStatements returns the statements that create the accounts in a copy of an external server. Accounts in
// the copy with the same names get the cluster's passwords, and their old passwords become invalid. The statements are
// for --init-file. They are not written to the binary log, because the copy would otherwise have errant transactions.
// The server stops reading the file at the first statement that fails.
func BuildTakeOverStatements(passwords map[string][]byte, requireTLS bool) []string {
	statements := []string{startSession}
	var users []string
	for _, a := range ListAccounts() {
		user := fmt.Sprintf("'%s'@'%%'", a.Name)
		users = append(users, user+" DISCARD OLD PASSWORD")
		statements = append(statements,
			fmt.Sprintf("CREATE USER IF NOT EXISTS %s IDENTIFIED BY '%s'", user, EscapePassword(passwords[a.PasswordKey])),
			fmt.Sprintf("ALTER USER %s IDENTIFIED WITH caching_sha2_password BY '%s' PASSWORD EXPIRE NEVER ACCOUNT UNLOCK", user, EscapePassword(passwords[a.PasswordKey])))
	}
	statements = append(statements, "ALTER USER "+strings.Join(users, ", "))
	return append(statements, BuildStatements(passwords, requireTLS)...)
}

// BuildRenewalStatements returns the statements that let accounts with expired passwords log in again. They run from
// --init-file at every start of a server, because an account with an expired password may not even run SET, and
// PASSWORD EXPIRE NEVER does not undo PASSWORD EXPIRE. They contain no passwords and are not written to the binary log.
func BuildRenewalStatements() []string {
	return []string{
		startSession,
		"UPDATE mysql.user SET password_expired = 'N', password_lifetime = 0 WHERE host = '%' AND user IN ('" + strings.Join(Names(), "', '") +
			"') AND (password_expired = 'Y' OR password_lifetime IS NULL OR password_lifetime <> 0)",
		"FLUSH LOCAL PRIVILEGES",
	}
}

// VersionAttribute is the user attribute of AdminUser with the version of the account list from which the accounts were
// created.
const VersionAttribute = "torporAccounts"

// CurrentVersion returns the version of the account list: a hash that does not depend on passwords.
func CurrentVersion(requireTLS bool) string {
	all := BuildStatements(nil, requireTLS)
	return hashStatements(all[:len(all)-1])
}

// hashStatements returns a hash of the statements without passwords. These contain the names of all accounts.
func hashStatements(statements []string) string {
	sum := fnv.New64a()
	for _, s := range statements {
		if !strings.HasPrefix(s, "CREATE USER") {
			_, _ = sum.Write([]byte(s + "\n")) // Writing to a hash never fails.
		}
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// ClientFileOf returns the name of the mysql client's option file for an account.
func ClientFileOf(name string) string { return name + "-my.cnf" }

// RotationAttribute is a user attribute of every account with two passwords. Its value is the ID of the rotation that
// set the newer password.
const RotationAttribute = "torporRotation"

// nextPrefix is the prefix of the key of a password that is about to replace an account's password.
const nextPrefix = "NEXT_"

// AddNextPasswords returns the passwords with a next password added for each account.
func AddNextPasswords(passwords map[string][]byte, newPassword func() string) map[string][]byte {
	all := maps.Clone(passwords)
	for _, a := range ListAccounts() {
		all[nextPrefix+a.PasswordKey] = []byte(newPassword())
	}
	return all
}

// HasNextPasswords reports whether each account has a next password.
func HasNextPasswords(passwords map[string][]byte) bool {
	return !slices.ContainsFunc(ListAccounts(), func(a MySQLAccount) bool { return len(passwords[nextPrefix+a.PasswordKey]) == 0 })
}

// PromoteNextPasswords returns the passwords after replacing each one with its next password, if there is one.
func PromoteNextPasswords(passwords map[string][]byte) map[string][]byte {
	all := maps.Clone(passwords)
	for _, a := range ListAccounts() {
		if next := all[nextPrefix+a.PasswordKey]; len(next) > 0 {
			all[a.PasswordKey] = next
		}
		delete(all, nextPrefix+a.PasswordKey)
	}
	return all
}

// BuildRetainStatement returns a statement that gives every account its next password and keeps the previous one valid.
// A single statement takes effect completely or not at all. It must run only once per rotation: a second run would
// retain the next password instead of the previous one.
func BuildRetainStatement(passwords map[string][]byte, rotation string) string {
	var users []string
	for _, a := range ListAccounts() {
		users = append(users, fmt.Sprintf("'%s'@'%%' IDENTIFIED BY '%s' RETAIN CURRENT PASSWORD", a.Name, EscapePassword(passwords[nextPrefix+a.PasswordKey])))
	}
	return fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"%s": "%s"}'`, strings.Join(users, ", "), RotationAttribute, rotation)
}

// BuildDiscardStatement returns a statement that discards the passwords that a rotation retained.
func BuildDiscardStatement() string {
	var users []string
	for _, a := range ListAccounts() {
		users = append(users, fmt.Sprintf("'%s'@'%%' DISCARD OLD PASSWORD", a.Name))
	}
	return fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"%s": null}'`, strings.Join(users, ", "), RotationAttribute)
}

// EscapePassword escapes a password for use in a quoted string, in SQL and in an option file.
func EscapePassword(password []byte) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`, `"`, `\"`, "\n", `\n`).Replace(string(password))
}
