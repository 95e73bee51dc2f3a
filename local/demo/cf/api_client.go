// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// requestAsAlice sends a request as alice, and prints what a person would type.
func (d *appDemo) requestAsAlice(method, path, body string, want int) (string, error) {
	line := `curl --cacert tls.crt -H "Authorization: Bearer $TOKEN"`
	if method != http.MethodGet {
		line += " -X " + method
	}
	if body != "" {
		line += " -d '" + strings.ReplaceAll(body, "'", `'\''`) + "'"
	}
	d.QuoteOutput(line + " '" + d.api + path + "'")
	status, found, err := d.sendRequest("alice", method, path, body)
	if err := expectThat(err, status == want, fmt.Sprintf("%d %s, want %d", status, found, want)); err != nil {
		return "", err
	}
	d.PrintObserved("%d %s", status, http.StatusText(status))
	return found, nil
}

func (d *appDemo) sendRequest(as, method, path, body string) (status int, found string, err error) {
	r, err := http.NewRequestWithContext(d.Context, method, d.api+path, strings.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+d.tokens[as])
	}
	response, err := d.http.Do(r)
	if err != nil {
		return 0, "", fmt.Errorf("ask the CF API: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	return response.StatusCode, string(raw), nil
}

// stringAt is a string in some JSON by its path; empty if there is none.
func stringAt(body string, path ...any) string {
	var value any
	if json.Unmarshal([]byte(body), &value) != nil {
		return ""
	}
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			name, _ := step.(string)
			value = v[name]
		case []any:
			i, ok := step.(int)
			if !ok || i >= len(v) {
				return ""
			}
			value = v[i]
		}
	}
	text, _ := value.(string)
	return text
}
