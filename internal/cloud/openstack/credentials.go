// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// cloudsKey is the key of the credentials Secret that Hive defines. Its value is a file in the format of
	// OpenStack's own clients.
	cloudsKey = "clouds.yaml"
	// mountedSecret is the path at which OpenShift's installer mounts the Secret. With this prefix, cacert refers to
	// another key of the Secret.
	mountedSecret = "/etc/openstack-ca/"
	// systemRoots is the value of cacert that stands for the system's certificates.
	systemRoots = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
)

// cloudSettings is the part of an entry of clouds.yaml that Torpor reads.
type cloudSettings struct {
	Auth         authSettings `json:"auth"`
	RegionName   string       `json:"region_name"`
	EndpointType string       `json:"endpoint_type"`
	Interface    string       `json:"interface"`
	Verify       *bool        `json:"verify"`
	CACert       string       `json:"cacert"`
	ClientCert   string       `json:"cert"`
	Profile      string       `json:"profile"`
	Cloud        string       `json:"cloud"`
	// roots are the certificates that cacert refers to; nil means the system's certificates.
	roots *x509.CertPool
	// rootsPEM is the PEM form of roots, for comparison.
	rootsPEM string
}

type authSettings struct {
	AuthURL           string `json:"auth_url"`
	Username          string `json:"username"`
	UserID            string `json:"user_id"`
	Password          string `json:"password"`
	UserDomainName    string `json:"user_domain_name"`
	UserDomainID      string `json:"user_domain_id"`
	DomainName        string `json:"domain_name"`
	DomainID          string `json:"domain_id"`
	ProjectName       string `json:"project_name"`
	ProjectID         string `json:"project_id"`
	ProjectDomainName string `json:"project_domain_name"`
	ProjectDomainID   string `json:"project_domain_id"`
	CredentialID      string `json:"application_credential_id"`
	CredentialName    string `json:"application_credential_name"`
	CredentialSecret  string `json:"application_credential_secret"`
}

// readCredentials reads the entry of a cloud. It uses neither files nor environment variables of the manager.
func readCredentials(secret map[string][]byte, cloud string) (cloudSettings, error) {
	text, ok := secret[cloudsKey]
	if !ok || len(strings.TrimSpace(string(text))) == 0 {
		return cloudSettings{}, actuator.Errorf(actuator.CredentialsMissing, "the credentials Secret has no %s: add it", cloudsKey)
	}
	var file struct {
		Clouds map[string]cloudSettings `json:"clouds"`
	}
	// The parser's error may contain a part of the text, and any part may be secret.
	if err := yaml.Unmarshal(text, &file); err != nil {
		return cloudSettings{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret: expected YAML with the key clouds and strings as settings; correct it", cloudsKey)
	}
	settings, ok := file.Clouds[cloud]
	if !ok {
		return cloudSettings{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in the credentials Secret has no cloud %.60q under clouds: add it, or correct spec.platform.openstack.cloud", cloudsKey, cloud)
	}
	if err := settings.check(); err != nil {
		return cloudSettings{}, err
	}
	return settings, settings.readRoots(secret)
}

func (s *cloudSettings) check() error {
	where := "the cloud in " + cloudsKey + " of the credentials Secret"
	u, err := url.Parse(s.Auth.AuthURL)
	switch {
	case s.Auth.AuthURL == "":
		return actuator.Errorf(actuator.CredentialsMissing, "%s has no auth_url: add it", where)
	case err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Hostname() == "" || u.User != nil || u.RawQuery != "":
		return actuator.Errorf(actuator.CredentialsInvalid, "auth_url of %s must be a URL such as https://openstack.example.com:5000/v3: correct it", where)
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v2.0"):
		return actuator.Errorf(actuator.CredentialsInvalid, "auth_url of %s is the URL of version 2.0 of the identity API, but Torpor needs version 3: correct it", where)
	case s.Profile != "" || s.Cloud != "":
		return actuator.Errorf(actuator.CredentialsInvalid, "%s refers to a profile in a file that the manager does not have: remove profile, and set auth_url", where)
	case s.Verify != nil && !*s.Verify:
		return actuator.Errorf(actuator.CredentialsInvalid, "%s has verify: false, but Torpor sends no credentials to unverified servers: remove verify, and set cacert to the certificates of the servers", where)
	case s.ClientCert != "":
		return actuator.Errorf(actuator.CredentialsInvalid, "%s has cert, the path of a file, but the manager reads no files for users: remove cert, and set a password or an application credential", where)
	case !slices.Contains([]string{"", "public", "publicURL", "internal", "internalURL"}, s.EndpointType+s.Interface):
		return actuator.Errorf(actuator.CredentialsInvalid, "%s: expected public or internal as interface: correct it", where)
	}
	a := s.Auth
	byCredential := a.CredentialID != "" || a.CredentialName != ""
	switch {
	case byCredential && a.CredentialSecret == "":
		return actuator.Errorf(actuator.CredentialsMissing, "%s has no application_credential_secret: add it", where)
	case byCredential && a.CredentialID == "" && a.Username+a.UserID == "":
		return actuator.Errorf(actuator.CredentialsMissing, "%s has an application_credential_name and neither application_credential_id nor user_id: add one", where)
	case byCredential:
		return nil
	case a.Username+a.UserID == "":
		return actuator.Errorf(actuator.CredentialsMissing, "%s has neither application_credential_id nor username: add one", where)
	case a.Password == "":
		return actuator.Errorf(actuator.CredentialsMissing, "%s has no password: add it", where)
	case a.ProjectName+a.ProjectID == "":
		return actuator.Errorf(actuator.CredentialsMissing, "%s has neither project_id nor project_name, but servers belong to a project: add one", where)
	default:
		return nil
	}
}

// readRoots reads the certificates that cacert refers to. In OpenShift, the path refers to a key of the same Secret.
func (s *cloudSettings) readRoots(secret map[string][]byte) error {
	if s.CACert == "" || s.CACert == systemRoots {
		return nil
	}
	key, ok := strings.CutPrefix(s.CACert, mountedSecret)
	if !ok {
		return actuator.Errorf(actuator.CredentialsInvalid, "cacert in %s of the credentials Secret refers to a file, but the manager reads no files for users: expected %sKEY, where KEY is a key of the Secret", cloudsKey, mountedSecret)
	}
	s.roots, s.rootsPEM = x509.NewCertPool(), string(secret[key])
	if !s.roots.AppendCertsFromPEM(secret[key]) {
		return actuator.Errorf(actuator.CredentialsInvalid, "cacert in %s of the credentials Secret refers to the key %.60q of the Secret, which must contain certificates in PEM: add them", cloudsKey, key)
	}
	return nil
}

// availability returns which of the catalog's URLs are used.
func (s *cloudSettings) availability() string {
	if strings.HasPrefix(s.EndpointType+s.Interface, "internal") {
		return "internal"
	}
	return "public"
}

// isEncrypted reports whether the login uses TLS.
func (s *cloudSettings) isEncrypted() bool {
	return strings.HasPrefix(strings.ToLower(s.Auth.AuthURL), "https://") // check accepts the scheme in any case.
}

func (s *cloudSettings) secretValues() []string {
	return []string{s.Auth.Password, s.Auth.CredentialSecret}
}

func (s *cloudSettings) loginOptions() *tokens.AuthOptions {
	a := s.Auth
	o := &tokens.AuthOptions{
		IdentityEndpoint: a.AuthURL, Username: a.Username, UserID: a.UserID, Password: a.Password, AllowReauth: true,
		ApplicationCredentialID: a.CredentialID, ApplicationCredentialName: a.CredentialName, ApplicationCredentialSecret: a.CredentialSecret,
	}
	if a.UserID == "" && a.CredentialID == "" { // The API refuses a domain together with an ID.
		o.DomainID, o.DomainName = firstOf(a.UserDomainID, a.UserDomainName, a.DomainID, a.DomainName)
	}
	if a.CredentialSecret != "" {
		return o // An application credential belongs to a project.
	}
	if a.ProjectID != "" {
		o.Scope = tokens.Scope{ProjectID: a.ProjectID}
		return o
	}
	o.Scope.ProjectName = a.ProjectName
	o.Scope.DomainID, o.Scope.DomainName = firstOf(a.ProjectDomainID, a.ProjectDomainName, a.DomainID, a.DomainName)
	return o
}

// firstOf returns the first ID or name of a domain that is set, because the API accepts only one of them.
func firstOf(id, name, otherID, otherName string) (string, string) {
	switch {
	case id != "":
		return id, ""
	case name != "":
		return "", name
	case otherID != "":
		return otherID, ""
	default:
		return "", otherName
	}
}
