// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

type mysqlAccount struct {
	name string
	// key is that of the password in the cluster's Secret.
	key string
	// grants are privileges on *.*.
	grants string
	// grantSuffix follows the grants.
	grantSuffix string
}

// instanceAccounts are those that an instance is initialised with. A user of the admin port needs SERVICE_CONNECTION_ADMIN.
func instanceAccounts() []mysqlAccount {
	return []mysqlAccount{
		{"moco-admin", "ADMIN_PASSWORD", "ALL PRIVILEGES", " WITH GRANT OPTION"},
		{"moco-agent", "AGENT_PASSWORD", "RELOAD, SELECT, REPLICATION CLIENT, BACKUP_ADMIN, CLONE_ADMIN, SERVICE_CONNECTION_ADMIN", ""},
		{"moco-repl", "REPLICATION_PASSWORD", "REPLICATION SLAVE, REPLICATION CLIENT", ""},
		{"moco-clone-donor", "CLONE_DONOR_PASSWORD", "BACKUP_ADMIN, SERVICE_CONNECTION_ADMIN", ""},
		{"moco-exporter", "EXPORTER_PASSWORD", "PROCESS, REPLICATION CLIENT, SELECT", ""},
		{"moco-backup", "BACKUP_PASSWORD", "EVENT, LOCK TABLES, PROCESS, RELOAD, REPLICATION CLIENT, REPLICATION SLAVE, SELECT, " +
			"SHOW DATABASES, SHOW VIEW, TRIGGER, BACKUP_ADMIN, SHOW_ROUTINE, SERVICE_CONNECTION_ADMIN", ""},
		{"moco-readonly", "READONLY_PASSWORD", "PROCESS, REPLICATION CLIENT, REPLICATION SLAVE, SELECT, SHOW DATABASES, SHOW VIEW", ""},
		{"moco-writable", "WRITABLE_PASSWORD", "ALTER, ALTER ROUTINE, CREATE, CREATE ROLE, CREATE ROUTINE, CREATE TEMPORARY TABLES, " +
			"CREATE USER, CREATE VIEW, DELETE, DROP, DROP ROLE, EVENT, EXECUTE, INDEX, INSERT, LOCK TABLES, PROCESS, REFERENCES, " +
			"REPLICATION CLIENT, REPLICATION SLAVE, SELECT, SHOW DATABASES, SHOW VIEW, TRIGGER, UPDATE", " WITH GRANT OPTION"},
	}
}

// MissingPasswordKeys are the keys for which the cluster's Secret has no password, sorted.
func MissingPasswordKeys(passwords map[string][]byte) []string {
	var missing []string
	for _, a := range instanceAccounts() {
		if len(passwords[a.key]) == 0 {
			missing = append(missing, a.key)
		}
	}
	slices.Sort(missing)
	return missing
}

const (
	// clientNameSuffix follows the name of an account in that of the file with its password.
	clientNameSuffix = "-my.cnf"
	// usersFile has the statements that a new instance runs.
	usersFile = "users.sql"
)

// clientSecretName is the Secret with a file for the program mysql for each account, and with usersFile.
func clientSecretName(c *mocov1beta2.MySQLCluster) string { return "moco-my-cnf-" + c.Name }

func buildClientSecret(c *mocov1beta2.MySQLCluster, passwords map[string][]byte) *unstructured.Unstructured {
	files := map[string]any{usersFile: base64.StdEncoding.EncodeToString([]byte(buildUsersSQL(passwords)))}
	for _, a := range instanceAccounts() {
		text := fmt.Sprintf("[client]\nuser=\"%s\"\npassword=\"%s\"\n", a.name, escapePassword(passwords[a.key]))
		files[a.name+clientNameSuffix] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return newObject(c, "v1", "Secret", clientSecretName(c), map[string]any{"type": "Opaque", "data": files})
}

// buildUsersSQL creates the accounts, one statement a line, as --init-file demands.
func buildUsersSQL(passwords map[string][]byte) string {
	var b strings.Builder
	for _, a := range instanceAccounts() {
		fmt.Fprintf(&b, "CREATE USER '%s'@'%%' IDENTIFIED BY '%s';\n", a.name, escapePassword(passwords[a.key]))
		fmt.Fprintf(&b, "GRANT %s ON *.* TO '%s'@'%%'%s;\n", a.grants, a.name, a.grantSuffix)
	}
	b.WriteString("GRANT PROXY ON ''@'' TO 'moco-admin'@'%' WITH GRANT OPTION;\n")
	// After --initialize-insecure this user has no password.
	b.WriteString("DROP USER 'root'@'localhost';\n")
	return b.String()
}

// escapePassword returns a password as it stands between quotes, in SQL and in an option file alike.
func escapePassword(password []byte) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`, `"`, `\"`, "\n", `\n`).Replace(string(password))
}
