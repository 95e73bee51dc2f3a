// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/accounts"
)

// usersFile has the statements that a new instance runs, takeOverFile those of a copy of another server.
const usersFile, takeOverFile = "users.sql", "take-over.sql"

// buildClientSecret has a file for the program mysql for each account, usersFile and takeOverFile.
func buildClientSecret(c *mocov1beta2.MySQLCluster, passwords map[string][]byte) *unstructured.Unstructured {
	files := map[string]any{
		usersFile:    base64.StdEncoding.EncodeToString([]byte(buildUsersSQL(passwords))),
		takeOverFile: base64.StdEncoding.EncodeToString([]byte(joinStatements(accounts.BuildTakeOverStatements(passwords, true)))),
	}
	for _, a := range accounts.ListAccounts() {
		text := fmt.Sprintf("[client]\nuser=\"%s\"\npassword=\"%s\"\n", a.Name, accounts.EscapePassword(passwords[a.PasswordKey]))
		if accounts.NeedsTLS(a.Name) { // Else the program does without on a socket.
			text += "ssl-mode=REQUIRED\n"
		}
		files[accounts.ClientFileOf(a.Name)] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return newObject(c, "v1", "Secret", c.ClientSecretName(), map[string]any{"type": "Opaque", "data": files})
}

// buildUsersSQL creates the accounts, one statement a line, as --init-file demands.
func buildUsersSQL(passwords map[string][]byte) string {
	// After --initialize-insecure this user has no password.
	return joinStatements(append(accounts.BuildStatements(passwords, true), "DROP USER 'root'@'localhost'"))
}

func joinStatements(statements []string) string { return strings.Join(statements, ";\n") + ";\n" }
