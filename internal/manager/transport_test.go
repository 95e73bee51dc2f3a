// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"net/http"
	"net/http/httptest"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestOnlyWatchesAreUncompressed(t *testing.T) {
	var found string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { found = r.Header.Get("Accept-Encoding") }))
	defer server.Close()
	web := &http.Client{Transport: plainWatches{http.DefaultTransport}}
	for query, want := range map[string]string{
		"?watch=true&allowWatchBookmarks=true": "identity",
		"?watch=false":                         "gzip",
		"":                                     "gzip",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/pods"+query, nil)
		testenv.ExpectNoError(t, err)
		answer, err := web.Do(r)
		testenv.ExpectNoError(t, err)
		testenv.ExpectNoError(t, answer.Body.Close())
		testenv.ExpectEqual(t, "the encoding of "+query, want, found)
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("expected the caller's request to stay unchanged, found %v", r.Header)
		}
	}
}
