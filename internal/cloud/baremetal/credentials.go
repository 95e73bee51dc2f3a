// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"cmp"
	"crypto/x509"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

// Keys of the credentials Secret. The keys of one machine's username and password begin with its name and a dot, and
// take precedence.
const (
	usernameKey  = "username"
	passwordKey  = "password"
	authorityKey = "ca.crt"
)

// login contains the credentials for one controller.
type login struct {
	user, password string
	// roots are the authorities for the controller's certificate; nil means the system's authorities.
	roots    *x509.CertPool
	rootsPEM string
}

func readLogin(secret map[string][]byte, machine string, address bmcAddress) (login, error) {
	l := login{
		user:     cmp.Or(string(secret[machine+"."+usernameKey]), string(secret[usernameKey])),
		password: cmp.Or(string(secret[machine+"."+passwordKey]), string(secret[passwordKey])),
		rootsPEM: string(secret[authorityKey]),
	}
	switch {
	case l.user == "":
		return login{}, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has neither %[1]s nor MACHINE.%[1]s: add one", usernameKey)
	case l.password == "":
		return login{}, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has neither %[1]s nor MACHINE.%[1]s: add one", passwordKey)
	case address.isIPMI && (len(l.user) > maxUserBytes || len(l.password) > maxPasswordBytes):
		return login{}, actuator.Errorf(actuator.CredentialsInvalid, "IPMI allows names of at most %d bytes and passwords of at most %d: correct the credentials Secret", maxUserBytes, maxPasswordBytes)
	case !address.isIPMI && strings.Contains(l.user, ":"):
		return login{}, actuator.Errorf(actuator.CredentialsInvalid, "%s of the credentials Secret contains a colon, which Redfish does not allow in names: correct it", usernameKey)
	case address.isIPMI || l.rootsPEM == "":
		return l, nil
	}
	l.roots = x509.NewCertPool()
	if !l.roots.AppendCertsFromPEM([]byte(l.rootsPEM)) {
		return login{}, actuator.Errorf(actuator.CredentialsInvalid, "%s of the credentials Secret must be certificates in PEM: correct it", authorityKey)
	}
	return l, nil
}
