// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"strings"
)

// readDefaultProfile reads the settings of the profile "default" from an AWS configuration file, keys in lower case.
// Errors name lines by number only, because any line may hold a secret.
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
				return nil, invalidCredentialsf("line %d of aws_config must be a section such as [default]: close the bracket", number)
			}
			section, opened, nesting = name, true, false
		case !opened:
			return nil, invalidCredentialsf("line %d of aws_config belongs to no profile: write [default] above it", number)
		case nesting && indented:
			// A setting of a setting, such as those under "s3 =": none of them matters here.
		default:
			key, value, ok := strings.Cut(text, "=")
			key = strings.ToLower(strings.TrimSpace(key))
			if !ok || key == "" {
				return nil, invalidCredentialsf("line %d of aws_config must be key = value: correct it", number)
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

// parseSectionName reads "[default]" and "[profile default]".
func parseSectionName(text string) (string, bool) {
	text = trimComment(text)
	inner, ok := strings.CutSuffix(text[1:], "]")
	words := strings.Fields(inner)
	if len(words) == 2 && words[0] == "profile" {
		words = words[1:]
	}
	return strings.Join(words, " "), ok && len(words) > 0
}

// trimComment cuts a comment, which starts with # or ; behind a space.
func trimComment(value string) string {
	for _, mark := range []string{" #", " ;", "\t#", "\t;"} {
		value, _, _ = strings.Cut(value, mark)
	}
	return strings.TrimSpace(value)
}
