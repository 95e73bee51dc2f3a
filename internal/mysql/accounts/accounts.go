// SPDX-License-Identifier: Apache-2.0

// Package accounts is the one list of the MySQL accounts that every instance has: their passwords' places, their rights, and
// the statements that give them. It is pure.
package accounts

import (
	"fmt"
	"hash/fnv"
	"maps"
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
	// needsTLS says that it logs in over the network, and never without TLS once every server has a certificate.
	needsTLS bool
	// grants are privileges on *.*, and grantSuffix follows them.
	grants, grantSuffix string
	// exempt are privileges that it has not in some schemas of the server's own: by writing there it could make itself an
	// administrator, and by reading there it would see others' passwords.
	exempt        string
	exemptSchemas []string
}

// ListAccounts returns the accounts. One of the admin port needs SERVICE_CONNECTION_ADMIN.
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

// NeedsTLS reports whether an account logs in over the network, so that it has to use TLS once every server has a certificate.
func NeedsTLS(name string) bool {
	return slices.ContainsFunc(ListAccounts(), func(a MySQLAccount) bool { return a.Name == name && a.needsTLS })
}

// BuildStatements returns what makes the accounts, or gives those that are there the rights that they lack. An account that is
// there keeps its password. Each statement is one line, as --init-file demands.
func BuildStatements(passwords map[string][]byte, requireTLS bool) []string {
	// Without this the server has no notion of a right that a schema is exempt from.
	statements := []string{"SET GLOBAL partial_revokes = ON"}
	for _, a := range ListAccounts() {
		statements = append(statements,
			fmt.Sprintf("CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s'", a.Name, EscapePassword(passwords[a.PasswordKey])),
			fmt.Sprintf("GRANT %s ON *.* TO '%s'@'%%'%s", a.grants, a.Name, a.grantSuffix))
		for _, schema := range a.exemptSchemas { // A grant on *.* takes earlier exemptions back, so that they come after it.
			statements = append(statements, fmt.Sprintf("REVOKE IF EXISTS %s ON %s.* FROM '%s'@'%%'", a.exempt, schema, a.Name))
		}
	}
	for _, a := range ListAccounts() {
		if a.needsTLS {
			statements = append(statements, fmt.Sprintf("ALTER USER '%s'@'%%' REQUIRE %s", a.Name, map[bool]string{true: "SSL", false: "NONE"}[requireTLS]))
		}
	}
	statements = append(statements, fmt.Sprintf("GRANT PROXY ON ''@'' TO '%s'@'%%' WITH GRANT OPTION", AdminUser))
	return append(statements, fmt.Sprintf(`ALTER USER '%s'@'%%' ATTRIBUTE '{"%s": "%s"}'`, AdminUser, VersionAttribute, hashStatements(statements)))
}

// BuildTakeOverStatements returns what makes the accounts in a copy of another server, which may have accounts of these names: they get
// the passwords, and no other. They are for --init-file; nothing of them gets to the binary log, or the copy would have transactions of
// its own. A file ends at its first statement that fails.
func BuildTakeOverStatements(passwords map[string][]byte, requireTLS bool) []string {
	statements := []string{"SET SESSION sql_log_bin = OFF"}
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

// VersionAttribute is the attribute of AdminUser with the version of the list by which the accounts were made.
const VersionAttribute = "torporAccounts"

// CurrentVersion is the version of the list, in which passwords have no part.
func CurrentVersion(requireTLS bool) string {
	all := BuildStatements(nil, requireTLS)
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

// ClientFileOf is the name of the file for the program mysql with the password of an account.
func ClientFileOf(name string) string { return name + "-my.cnf" }

// RotationAttribute is the attribute of every account that has two passwords: the rotation by which it got the newer one.
const RotationAttribute = "torporRotation"

// nextPrefix is before the key of a password that is about to be the account's.
const nextPrefix = "NEXT_"

// AddNextPasswords returns the passwords with another one for each account beside it.
func AddNextPasswords(passwords map[string][]byte, newPassword func() string) map[string][]byte {
	all := maps.Clone(passwords)
	for _, a := range ListAccounts() {
		all[nextPrefix+a.PasswordKey] = []byte(newPassword())
	}
	return all
}

// HasNextPasswords reports whether there is one for each account.
func HasNextPasswords(passwords map[string][]byte) bool {
	return !slices.ContainsFunc(ListAccounts(), func(a MySQLAccount) bool { return len(passwords[nextPrefix+a.PasswordKey]) == 0 })
}

// PromoteNextPasswords returns the passwords with each next one in the place of the one before, if there are any.
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

// BuildRetainStatement gives every account its next password and keeps the one before valid. It is one statement, so that it is
// done or not, and is done only once for a rotation: a second time it would keep the next one, and no other.
func BuildRetainStatement(passwords map[string][]byte, rotation string) string {
	var users []string
	for _, a := range ListAccounts() {
		users = append(users, fmt.Sprintf("'%s'@'%%' IDENTIFIED BY '%s' RETAIN CURRENT PASSWORD", a.Name, EscapePassword(passwords[nextPrefix+a.PasswordKey])))
	}
	return fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"%s": "%s"}'`, strings.Join(users, ", "), RotationAttribute, rotation)
}

// BuildDiscardStatement ends the passwords that a rotation kept valid.
func BuildDiscardStatement() string {
	var users []string
	for _, a := range ListAccounts() {
		users = append(users, fmt.Sprintf("'%s'@'%%' DISCARD OLD PASSWORD", a.Name))
	}
	return fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"%s": null}'`, strings.Join(users, ", "), RotationAttribute)
}

// EscapePassword returns a password as it stands between quotes, in SQL and in an option file alike.
func EscapePassword(password []byte) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`, `"`, `\"`, "\n", `\n`).Replace(string(password))
}
