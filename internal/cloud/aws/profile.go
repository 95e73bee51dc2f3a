// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"strings"
)

// defaultProfile reads the settings of the profile "default" from an AWS configuration file, keys in lower case.
// Errors name lines by number only, because any line may hold a secret.
func defaultProfile(file string) (map[string]string, error) {
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
			name, ok := sectionName(text)
			if !ok {
				return nil, invalidf("line %d of aws_config must be a section such as [default]: close the bracket", number)
			}
			section, opened, nesting = name, true, false
		case !opened:
			return nil, invalidf("line %d of aws_config belongs to no profile: write [default] above it", number)
		case nesting && indented:
			// A setting of a setting, such as those under "s3 =": none of them matters here.
		default:
			key, value, ok := strings.Cut(text, "=")
			key = strings.ToLower(strings.TrimSpace(key))
			if !ok || key == "" {
				return nil, invalidf("line %d of aws_config must be key = value: correct it", number)
			}
			value = withoutComment(value)
			nesting = value == ""
			if section == "default" {
				profile[key] = value
			}
		}
	}
	return profile, nil
}

// sectionName reads "[default]" and "[profile default]".
func sectionName(text string) (string, bool) {
	text = withoutComment(text)
	inner, ok := strings.CutSuffix(text[1:], "]")
	words := strings.Fields(inner)
	if len(words) == 2 && words[0] == "profile" {
		words = words[1:]
	}
	return strings.Join(words, " "), ok && len(words) > 0
}

// withoutComment cuts a comment, which starts with # or ; behind a space.
func withoutComment(value string) string {
	for _, mark := range []string{" #", " ;", "\t#", "\t;"} {
		value, _, _ = strings.Cut(value, mark)
	}
	return strings.TrimSpace(value)
}
