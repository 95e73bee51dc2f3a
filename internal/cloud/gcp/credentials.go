// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// serviceAccountKey is the key of the credentials Secret that Hive defines. Its value is the key file of a
	// service account.
	serviceAccountKey = "osServiceAccount.json"
	// tokenURL is the only source of tokens, even if the key file contains another URL.
	tokenURL = "https://oauth2.googleapis.com/token"
	// googleUniverse is the only supported cloud. Google operates others for governments.
	googleUniverse = "googleapis.com"
	// maxProjectBytes exceeds the length that Google allows for a domain and a project. maxKeyBits limits the time to
	// sign with a key.
	maxProjectBytes = 128
	maxKeyBits      = 8192
)

// serviceAccount contains the validated content of a credentials Secret.
type serviceAccount struct {
	Type         string `json:"type"`
	ProjectID    string `json:"project_id"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
	ClientEmail  string `json:"client_email"`
	TokenURI     string `json:"token_uri"`
	Universe     string `json:"universe_domain"`
}

// readCredentials reads the Secret. Errors contain no part of its values except the type.
func readCredentials(secret map[string][]byte) (serviceAccount, error) {
	content, ok := secret[serviceAccountKey]
	if !ok {
		return serviceAccount{}, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s: add it, with the key file of a service account as its value", serviceAccountKey)
	}
	var a serviceAccount
	if err := json.Unmarshal(content, &a); err != nil {
		return serviceAccount{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret: expected a JSON object with strings as values; correct it", serviceAccountKey)
	}
	for _, field := range []struct{ name, value string }{
		{"project_id", a.ProjectID}, {"client_email", a.ClientEmail}, {"private_key", a.PrivateKey},
	} {
		if a.Type == "service_account" && field.value == "" {
			return serviceAccount{}, actuator.Errorf(actuator.CredentialsMissing, "%s in the credentials Secret has no %s: add it", serviceAccountKey, field.name)
		}
	}
	return a, a.check()
}

func (a serviceAccount) check() error {
	where := serviceAccountKey + " in the credentials Secret"
	switch {
	case a.Type != "service_account":
		// Other types refer to files of the manager, or to servers that would receive its identity.
		return actuator.Errorf(actuator.CredentialsInvalid, "type of %s must be service_account, found %.40q: create a key of a service account", where, a.Type)
	case len(a.ProjectID) > maxProjectBytes || strings.Trim(a.ProjectID, "abcdefghijklmnopqrstuvwxyz0123456789-.:") != "":
		return actuator.Errorf(actuator.CredentialsInvalid, "project_id of %s must be the id of a project: correct it", where)
	case cmp.Or(a.Universe, googleUniverse) != googleUniverse:
		return actuator.Errorf(actuator.CredentialsInvalid, "universe_domain of %s is not %s, the only one that Torpor supports", where, googleUniverse)
	case !slices.Contains([]string{"", tokenURL, "https://accounts.google.com/o/oauth2/token"}, a.TokenURI):
		// A user who may write a Secret must not be able to make the manager send requests elsewhere.
		return actuator.Errorf(actuator.CredentialsInvalid, "token_uri of %s must be %s: correct it", where, tokenURL)
	case !isSigningKey(a.PrivateKey):
		return actuator.Errorf(actuator.CredentialsInvalid, "private_key of %s must be an RSA key in PEM of at most %d bits: use the key file from Google unchanged", where, maxKeyBits)
	default:
		return nil
	}
}

func isSigningKey(text string) bool {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return false
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key.N.BitLen() <= maxKeyBits
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	parsed, isRSA := key.(*rsa.PrivateKey)
	return err == nil && isRSA && parsed.N.BitLen() <= maxKeyBits
}
