// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

// TestEveryRequestOfTheClientIsAnswered reads the list of requests that versions 8 and 9 of the cf client may send.
// Each request either has a handler, or is refused with the sentence from the list, which the client prints.
func TestEveryRequestOfTheClientIsAnswered(t *testing.T) {
	file, err := os.Open("testdata/client-requests.list")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	mux := (&server{metrics: newMetrics(), log: slog.New(slog.DiscardHandler)}).newHandler()
	var handled, refused []string
	for _, route := range handlers.Routes() {
		handled = append(handled, route.Method+" "+route.Path)
	}
	parameter := regexp.MustCompile(`:\w+`)
	requests := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		requests++
		method, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, sentence, isRefused := strings.Cut(rest, " -> ")
		request := httptest.NewRequestWithContext(t.Context(), method, parameter.ReplaceAllString(path, "x"), nil)
		_, pattern := mux.Handler(request)
		if !isRefused {
			if !slices.Contains(handled, pattern) {
				t.Errorf("%s %s: expected a handler, found %q", method, path, pattern)
			}
			continue
		}
		refused = append(refused, pattern)
		if status, found := serveError(t, mux, request); status != http.StatusUnprocessableEntity || found != sentence {
			t.Errorf("%s %s: expected 422 %q, found %d %q", method, path, sentence, status, found)
		}
	}
	const listed = 177
	if requests < listed {
		t.Errorf("expected at least %d requests, found %d", listed, requests)
	}
	for _, feature := range handlers.MissingFeatures() {
		for _, path := range feature.Paths {
			if !slices.Contains(refused, path) && !slices.Contains(refused, strings.TrimSuffix(path, "/")) {
				t.Errorf("expected a request of the client for each refused path, found none for %s", path)
			}
		}
	}
}

// serveError returns the status and the error detail of the response to a request.
func serveError(t *testing.T, handler http.Handler, request *http.Request) (status int, detail string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	var answer struct {
		Errors []struct {
			Detail string `json:"detail"`
		} `json:"errors"`
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || len(answer.Errors) != 1 {
		t.Fatalf("%s %s: expected an error of CF, found %d %s (%v)", request.Method, request.URL, recorder.Code, recorder.Body, err)
	}
	return recorder.Code, answer.Errors[0].Detail
}
