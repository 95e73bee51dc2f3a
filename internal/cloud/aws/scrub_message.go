// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"regexp"
	"strings"
)

// scrubMessage removes from the cloud's words what must not be shown and what is different each time.
func scrubMessage(message string, secrets []string) string {
	const longest = 400
	for _, secret := range secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "<hidden>")
		}
	}
	for _, rule := range []struct{ pattern, instead string }{
		{`(?i)encoded authorization failure message:\s*\S*`, " "},
		{`(?i)[(,;]?\s*request[ _-]?id\s*[:=]?\s*"?[0-9a-z]+(-[0-9a-z]+)+"?\)?`, " "},
		{`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`, "<id>"},
		{`\b(AKIA|ASIA)[A-Z0-9]{12,}\b`, "<access key>"},
		{`\b\d{8}T\d{6}Z\b`, "<time>"},
		{`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?Z?`, "<time>"},
	} {
		message = regexp.MustCompile(rule.pattern).ReplaceAllString(message, rule.instead)
	}
	message = strings.Join(strings.Fields(message), " ")
	if letters := []rune(message); len(letters) > longest {
		message = string(letters[:longest]) + "…"
	}
	return message
}
