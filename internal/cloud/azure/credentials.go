// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"crypto"
	"crypto/x509"
	"encoding/json"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/torpor-dev/torpor/actuator"
)

// Keys of the credentials Secret. Hive defines servicePrincipalKey. certificateKey contains the certificate and the key
// of a service principal without a client secret.
const (
	servicePrincipalKey = "osServicePrincipal.json"
	certificateKey      = "clientCertificate.pem"
)

// servicePrincipal contains the validated content of a credentials Secret.
type servicePrincipal struct {
	SubscriptionID string `json:"subscriptionId"`
	TenantID       string `json:"tenantId"`
	ClientID       string `json:"clientId"`
	ClientSecret   string `json:"clientSecret"`
	// CertificateFile is the path of a file that is never read, because it would be in the manager's own file system.
	CertificateFile string `json:"clientCertificate"`

	// isFederated reports whether the manager logs in with the token of its ServiceAccount.
	isFederated  bool
	pem          []byte
	certificates []*x509.Certificate
	privateKey   crypto.PrivateKey
}

// readCredentials reads the Secret. mayFederate reports whether the manager's own token may be used if the Secret
// contains neither a secret nor a certificate. Errors do not contain any part of the Secret's values.
func readCredentials(secret map[string][]byte, mayFederate func(servicePrincipal) bool) (servicePrincipal, error) {
	content, ok := secret[servicePrincipalKey]
	if !ok {
		return servicePrincipal{}, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s: add it, with subscriptionId, tenantId, clientId and clientSecret", servicePrincipalKey)
	}
	var p servicePrincipal
	if err := json.Unmarshal(content, &p); err != nil {
		return servicePrincipal{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret: expected a JSON object with strings as values; correct it", servicePrincipalKey)
	}
	for _, field := range []struct {
		name  string
		value *string
	}{{"subscriptionId", &p.SubscriptionID}, {"tenantId", &p.TenantID}, {"clientId", &p.ClientID}} {
		*field.value = strings.TrimSpace(*field.value)
		if *field.value == "" {
			return servicePrincipal{}, actuator.Errorf(actuator.CredentialsMissing, "%s in the credentials Secret has no %s: add it", servicePrincipalKey, field.name)
		}
		// The values become parts of URLs.
		if !isID(*field.value) {
			return servicePrincipal{}, actuator.Errorf(actuator.CredentialsInvalid, "%s of %s in the credentials Secret must be an id such as 00000000-0000-0000-0000-000000000000: correct it",
				field.name, servicePrincipalKey)
		}
	}
	return p.withProof(secret[certificateKey], mayFederate)
}

func isID(text string) bool {
	return text != "" && len(text) <= maxIDBytes && strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// maxIDBytes limits the length of an ID. Azure's IDs are shorter.
const maxIDBytes = 128

// withProof checks the credential with which the service principal logs in: a secret, a certificate with its key, or
// the manager's own token.
func (p servicePrincipal) withProof(pem []byte, mayFederate func(servicePrincipal) bool) (servicePrincipal, error) {
	p.ClientSecret = strings.TrimSpace(p.ClientSecret)
	switch {
	case p.ClientSecret != "":
		return p, nil
	case len(pem) > 0:
		var err error
		if p.certificates, p.privateKey, err = azidentity.ParseCertificates(pem, nil); err != nil {
			return servicePrincipal{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret must have a certificate and its key without a password: enter them again", certificateKey)
		}
		p.pem = pem
		return p, nil
	case p.CertificateFile != "":
		// A user who may write a Secret must not be able to make the manager read its own files.
		return servicePrincipal{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret refers to a file in clientCertificate, but Torpor does not read files: put the content of the file into the key %s",
			servicePrincipalKey, certificateKey)
	case mayFederate(p):
		p.isFederated = true
		return p, nil
	default:
		return servicePrincipal{}, actuator.Errorf(actuator.CredentialsMissing, "%s in the credentials Secret has no clientSecret: add it, or add the key %s, or ask the administrator to list the service principal in --azure-workload-identities for the namespace",
			servicePrincipalKey, certificateKey)
	}
}
