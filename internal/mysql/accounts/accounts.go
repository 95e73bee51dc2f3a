// SPDX-License-Identifier: Apache-2.0

// Package accounts is the one list of the MySQL accounts that every instance has: their passwords' places, their rights, and
// the statements that give them. It is pure.
package accounts

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// The accounts by name.
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

// MySQLAccount is an account of every instance.
type MySQLAccount struct {
	Name string
	// PasswordKey is that of the password in the cluster's Secret.
	PasswordKey string
	// IsSystem says that Torpor logs in with it, and no client. SYSTEM_USER keeps others from changing it.
	IsSystem bool
	// grants are privileges on *.*, and grantSuffix follows them.
	grants, grantSuffix string
	// isConfined says that it writes to no table of the server's own, by which it could make itself an administrator.
	isConfined bool
}

// ListAccounts returns the accounts. One of the admin port needs SERVICE_CONNECTION_ADMIN.
func ListAccounts() []MySQLAccount {
	return []MySQLAccount{
		{Name: AdminUser, PasswordKey: "ADMIN_PASSWORD", IsSystem: true, grants: "ALL PRIVILEGES", grantSuffix: " WITH GRANT OPTION"},
		{Name: AgentUser, PasswordKey: "AGENT_PASSWORD", IsSystem: true, grants: "RELOAD, SELECT, REPLICATION CLIENT, BACKUP_ADMIN, CLONE_ADMIN, SERVICE_CONNECTION_ADMIN, SYSTEM_USER"},
		{Name: ReplicationUser, PasswordKey: "REPLICATION_PASSWORD", IsSystem: true, grants: "REPLICATION SLAVE, REPLICATION CLIENT, SYSTEM_USER"},
		{Name: DonorUser, PasswordKey: "CLONE_DONOR_PASSWORD", IsSystem: true, grants: "BACKUP_ADMIN, SERVICE_CONNECTION_ADMIN, SYSTEM_USER"},
		{Name: ExporterUser, PasswordKey: "EXPORTER_PASSWORD", IsSystem: true, grants: "PROCESS, REPLICATION CLIENT, SELECT, SYSTEM_USER"},
		{Name: BackupUser, PasswordKey: "BACKUP_PASSWORD", IsSystem: true, grants: "EVENT, LOCK TABLES, PROCESS, RELOAD, REPLICATION CLIENT, REPLICATION SLAVE, SELECT, " +
			"SHOW DATABASES, SHOW VIEW, TRIGGER, BACKUP_ADMIN, SHOW_ROUTINE, SERVICE_CONNECTION_ADMIN, SYSTEM_USER"},
		{Name: ReadOnlyUser, PasswordKey: "READONLY_PASSWORD", grants: "PROCESS, REPLICATION CLIENT, REPLICATION SLAVE, SELECT, SHOW DATABASES, SHOW VIEW"},
		{Name: WritableUser, PasswordKey: "WRITABLE_PASSWORD", isConfined: true, grants: writing + ", CREATE ROLE, CREATE USER, DROP ROLE, EXECUTE, LOCK TABLES, PROCESS, " +
			"REPLICATION CLIENT, REPLICATION SLAVE, SELECT, SHOW DATABASES, SHOW VIEW", grantSuffix: " WITH GRANT OPTION"},
	}
}

// writing are the privileges that change a database.
const writing = "ALTER, ALTER ROUTINE, CREATE, CREATE ROUTINE, CREATE TEMPORARY TABLES, CREATE VIEW, DELETE, DROP, EVENT, INDEX, INSERT, REFERENCES, TRIGGER, UPDATE"

// PasswordKeyOf returns the key of an account's password, empty for a name that is none.
func PasswordKeyOf(name string) string {
	for _, a := range ListAccounts() {
		if a.Name == name {
			return a.PasswordKey
		}
	}
	return ""
}

// SystemUsers returns the accounts that are no client's: their sessions stay when clients are cut off.
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

// BuildStatements returns what makes the accounts, or gives those that are there the rights that they lack. An account that is
// there keeps its password. Each statement is one line, as --init-file demands.
func BuildStatements(passwords map[string][]byte) []string {
	// Without this the server has no notion of a right that a schema is exempt from.
	statements := []string{"SET GLOBAL partial_revokes = ON"}
	for _, a := range ListAccounts() {
		statements = append(statements,
			fmt.Sprintf("CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s'", a.Name, EscapePassword(passwords[a.PasswordKey])),
			fmt.Sprintf("GRANT %s ON *.* TO '%s'@'%%'%s", a.grants, a.Name, a.grantSuffix))
		if a.isConfined { // A grant on *.* takes earlier exemptions back, so that they come after it.
			for _, schema := range []string{"mysql", "sys"} {
				statements = append(statements, fmt.Sprintf("REVOKE IF EXISTS %s ON %s.* FROM '%s'@'%%'", writing, schema, a.Name))
			}
		}
	}
	statements = append(statements, fmt.Sprintf("GRANT PROXY ON ''@'' TO '%s'@'%%' WITH GRANT OPTION", AdminUser))
	return append(statements, fmt.Sprintf(`ALTER USER '%s'@'%%' ATTRIBUTE '{"%s": "%s"}'`, AdminUser, VersionAttribute, hashStatements(statements)))
}

// VersionAttribute is the attribute of AdminUser with the version of the list by which the accounts were made.
const VersionAttribute = "torporAccounts"

// CurrentVersion is the version of the list, in which passwords have no part.
func CurrentVersion() string {
	all := BuildStatements(nil)
	return hashStatements(all[:len(all)-1])
}

// hashStatements leaves out the statements with passwords, of which the names follow in others.
func hashStatements(statements []string) string {
	sum := fnv.New64a()
	for _, s := range statements {
		if !strings.HasPrefix(s, "CREATE USER") {
			_, _ = sum.Write([]byte(s + "\n")) // A hash takes everything.
		}
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// EscapePassword returns a password as it stands between quotes, in SQL and in an option file alike.
func EscapePassword(password []byte) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`, `"`, `\"`, "\n", `\n`).Replace(string(password))
}
