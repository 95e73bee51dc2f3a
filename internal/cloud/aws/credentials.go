// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

// Keys of the credentials Secret. The first four are also settings of a profile.
const (
	accessKeyID     = "aws_access_key_id"
	secretAccessKey = "aws_secret_access_key"
	sessionToken    = "aws_session_token"
	endpointURL     = "endpoint_url"
	configFile      = "aws_config"
)

// staticCredentials contains the validated content of a credentials Secret.
type staticCredentials struct {
	id, secret, token, endpoint string
}

// secretValues returns the values that must never be shown.
func (c staticCredentials) secretValues() []string { return []string{c.secret, c.token, c.id} }

// readCredentials reads the Secret: its keys, or the profile "default" of the AWS configuration file in it.
func readCredentials(secret map[string][]byte) (staticCredentials, error) {
	setting, place := func(key string) string { return string(bytes.TrimSpace(secret[key])) }, "the credentials Secret"
	if file, ok := secret[configFile]; ok {
		profile, err := readDefaultProfile(string(file))
		if err != nil {
			return staticCredentials{}, err
		}
		if err := refuseIndirectKeys(profile); err != nil {
			return staticCredentials{}, err
		}
		fromSecret := setting
		setting = func(key string) string { return profile[key] }
		if profile[endpointURL] == "" {
			profile[endpointURL] = fromSecret(endpointURL)
		}
		place = "the profile [default] of aws_config in the credentials Secret"
	}
	for _, key := range []string{accessKeyID, secretAccessKey} {
		if setting(key) == "" {
			return staticCredentials{}, actuator.Errorf(actuator.CredentialsMissing, "%s has no %s: add it", place, key)
		}
	}
	for _, key := range []string{accessKeyID, secretAccessKey, sessionToken} {
		if strings.ContainsFunc(setting(key), func(r rune) bool { return r <= ' ' || r > '~' }) {
			return staticCredentials{}, actuator.Errorf(actuator.CredentialsInvalid, "%s in %s must be printable ASCII without spaces: enter the value again", key, place)
		}
	}
	return staticCredentials{
		id: setting(accessKeyID), secret: setting(secretAccessKey),
		token: setting(sessionToken), endpoint: setting(endpointURL),
	}, nil
}

// refuseIndirectKeys refuses profiles that refer to another source of keys.
func refuseIndirectKeys(profile map[string]string) error {
	indirect := []string{
		"credential_process", "credential_source", "role_arn", "source_profile", "sso_session", "sso_start_url",
		"web_identity_token_file",
	}
	// A user who may write a Secret must not be able to run a program in the manager with credential_process, or to
	// act with the manager's identity.
	for _, key := range indirect {
		if _, ok := profile[key]; ok {
			return actuator.Errorf(actuator.CredentialsInvalid, "aws_config in the credentials Secret uses %s, but Torpor supports only static keys: "+
				"set %s and %s of an IAM user instead", key, accessKeyID, secretAccessKey)
		}
	}
	return nil
}

// endpointOrDefault returns the URL that replaces EC2's own endpoint. It is empty if EC2's own endpoint is used.
func (c staticCredentials) endpointOrDefault(fallback string) string {
	return cmp.Or(c.endpoint, fallback)
}

// readDefaultProfile reads the settings of the profile "default" from an AWS configuration file, with keys in lower
// case. Errors identify lines only by number, because any line may contain a secret.
func readDefaultProfile(file string) (map[string]string, error) {
	profile := map[string]string{}
	section, opened := "", false
	nesting := false
	number := 0
	for line := range strings.Lines(file) {
		number++
		text := strings.TrimSpace(line)
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '[':
			name, ok := parseSectionName(text)
			if !ok {
				return nil, actuator.Errorf(actuator.CredentialsInvalid, "line %d of aws_config must be a section such as [default]: close the bracket", number)
			}
			section, opened, nesting = name, true, false
		case !opened:
			return nil, actuator.Errorf(actuator.CredentialsInvalid, "line %d of aws_config belongs to no profile: write [default] above it", number)
		case nesting && indented:
			// A nested setting, such as those under "s3 =", is not needed.
		default:
			key, value, ok := strings.Cut(text, "=")
			key = strings.ToLower(strings.TrimSpace(key))
			if !ok || key == "" {
				return nil, actuator.Errorf(actuator.CredentialsInvalid, "line %d of aws_config must be key = value: correct it", number)
			}
			value = trimComment(value)
			nesting = value == ""
			if section == "default" {
				profile[key] = value
			}
		}
	}
	return profile, nil
}

// parseSectionName returns the profile of a section such as "[default]" or "[profile default]".
func parseSectionName(text string) (string, bool) {
	text = trimComment(text)
	inner, ok := strings.CutSuffix(text[1:], "]")
	words := strings.Fields(inner)
	if len(words) == 2 && words[0] == "profile" {
		words = words[1:]
	}
	return strings.Join(words, " "), ok && len(words) > 0
}

// trimComment removes a comment, which starts with # or ; after a space.
func trimComment(value string) string {
	for _, mark := range []string{" #", " ;", "\t#", "\t;"} {
		value, _, _ = strings.Cut(value, mark)
	}
	return strings.TrimSpace(value)
}
