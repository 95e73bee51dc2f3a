// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

// A shared cache in front of the API may store the response to a request with a forged Host header.
func TestLinksNameTheExternalURL(t *testing.T) {
	for address, begins := range map[string]string{
		"":                         "https://evil.example",
		"https://api.example.com":  "https://api.example.com",
		"https://api.example.com/": "https://api.example.com",
	} {
		external, err := parseExternalURL(address)
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		s := &server{api: &handlers.API{Clock: clock.RealClock{}}, metrics: newMetrics(), externalURL: external}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		request.Host = "evil.example"
		answer := httptest.NewRecorder()
		s.newHandler().ServeHTTP(answer, request)
		if body := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(body, `"`+begins) || (address != "" && strings.Contains(body, "evil")) {
			t.Errorf("%q: expected links that begin with %s, found %d: %s", address, begins, answer.Code, body)
		}
	}
}

func TestExternalURLsThatAreRefused(t *testing.T) {
	for _, address := range []string{"http://api.example.com", "api.example.com", "https://", "https://u:p@api.example.com", "https://api.example.com/v3", "https://api.example.com?x", "https://api.example.com#x"} {
		if _, err := parseExternalURL(address); err == nil || !strings.Contains(err.Error(), "--external-url") {
			t.Errorf("%q: expected an error that names the flag, found %v", address, err)
		}
	}
}
