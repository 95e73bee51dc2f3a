// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// usersFile contains the statements that a new instance runs. takeOverFile contains those that a copy of another server
// runs.
const usersFile, takeOverFile = "users.sql", "take-over.sql"

// buildClientSecret builds a Secret with usersFile, takeOverFile and an option file of the mysql client for each
// account.
func buildClientSecret(c *mocov1beta2.MySQLCluster, passwords map[string][]byte) *unstructured.Unstructured {
	files := map[string]any{
		usersFile:    base64.StdEncoding.EncodeToString([]byte(buildUsersSQL(passwords))),
		takeOverFile: base64.StdEncoding.EncodeToString([]byte(joinStatements(mysqlusers.BuildTakeOverStatements(passwords, true)))),
	}
	for _, a := range mysqlusers.ListAccounts() {
		text := fmt.Sprintf("[client]\nuser=\"%s\"\npassword=\"%s\"\n", a.Name, mysqlusers.EscapePassword(passwords[a.PasswordKey]))
		if mysqlusers.NeedsTLS(a.Name) { // Without this option, the client does not use TLS on a socket.
			text += "ssl-mode=REQUIRED\n"
		}
		files[mysqlusers.ClientFileOf(a.Name)] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return newObject(c, "v1", "Secret", c.ClientSecretName(), map[string]any{"type": "Opaque", "data": files})
}

// buildUsersSQL returns statements that create the accounts, one per line, as --init-file requires.
func buildUsersSQL(passwords map[string][]byte) string {
	// --initialize-insecure creates this user without a password.
	return joinStatements(append(mysqlusers.BuildStatements(passwords, true), "DROP USER 'root'@'localhost'"))
}

func joinStatements(statements []string) string { return strings.Join(statements, ";\n") + ";\n" }
