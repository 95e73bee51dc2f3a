// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

// TestWorkloadIdentities uses a Secret without a client secret and certificate.
func TestWorkloadIdentities(t *testing.T) {
	const token = "token-of-the-manager-itself"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	mine := goodTenant + "/" + goodClient
	for name, row := range map[string]struct {
		listed  []string
		file    string
		secret  string
		class   actuator.ErrorClass
		says    string
		byToken bool
	}{
		"listed service principal uses the manager's token":                    {listed: []string{"team-a=" + mine}, file: file, byToken: true},
		"service principal listed for all namespaces uses the manager's token": {listed: []string{"*=" + strings.ToUpper(mine)}, file: file, byToken: true},
		"client secret takes precedence over a listed service principal":       {listed: []string{"*=" + mine}, file: file, secret: goodSecret},
		"empty list is CredentialsMissing":                                     {file: file, class: actuator.CredentialsMissing, says: "list the service principal in --azure-workload-identities"},
		"service principal listed for another namespace is CredentialsMissing": {listed: []string{"team-b=" + mine}, file: file, class: actuator.CredentialsMissing, says: "has no clientSecret"},
		"list with only another service principal is CredentialsMissing":       {listed: []string{"team-a=" + goodTenant + "/other"}, file: file, class: actuator.CredentialsMissing, says: "has no clientSecret"},
		"service principal listed in another directory is CredentialsMissing":  {listed: []string{"team-a=other/" + goodClient}, file: file, class: actuator.CredentialsMissing, says: "has no clientSecret"},
		"manager without a token is reported":                                  {listed: []string{"team-a=" + mine}, class: actuator.Other, says: "expected AZURE_FEDERATED_TOKEN_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startAzure(t)
			listed, err := ParseWorkloadIdentities(row.listed)
			if err != nil {
				t.Fatal(err)
			}
			a := New(Options{HTTPClient: cloud.client(), Attempts: 2, WorkloadIdentities: listed, TokenFile: row.file})
			secret := map[string][]byte{servicePrincipalKey: []byte(strings.Replace(string(goodCredentials()[servicePrincipalKey]), goodSecret, row.secret, 1))}
			_, err = a.Observe(t.Context(), actuator.Target{InfraID: "a", Namespace: "team-a", Credentials: secret})
			if row.class == "" && err != nil || row.class != "" && (actuator.ClassOf(err) != row.class || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("found %v, want class %q and %q", err, row.class, row.says)
			}
			cloud.Lock()
			defer cloud.Unlock()
			if (cloud.assertion == token) != row.byToken {
				t.Errorf("logged in with the assertion %q, want the manager's token to be used: %t", cloud.assertion, row.byToken)
			}
		})
	}
}

func TestWorkloadIdentitiesAreParsed(t *testing.T) {
	for _, entry := range []string{"", "team-a", "team-a=", "=a/b", "team-a=a", "team-a=a/", "team-a=a/b/c", "team-a=a/b c"} {
		if found, err := ParseWorkloadIdentities([]string{entry}); err == nil {
			t.Errorf("%q: found %v, want an error", entry, found)
		}
	}
}
