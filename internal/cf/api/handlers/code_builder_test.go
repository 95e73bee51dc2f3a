// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

func TestAddressesOfBuilders(t *testing.T) {
	t.Parallel()
	for address, isGood := range map[string]bool{
		"": true, "https://builder.example.svc/code": true, "http://127.0.0.1:80": true,
		"builder.example.svc": false, "file:///code": false, "https://user:secret@builder": false, "https://builder?a=b": false, "https://": false,
	} {
		switch _, err := NewCodeBuilder(address, ""); {
		case (err == nil) != isGood:
			t.Errorf("%q: expected good %t, found %v", address, isGood, err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: expected an error without the address, found %v", address, err)
		}
	}
}

func TestAnswersOfBuilders(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("expected no redirect to be followed") }))
	t.Cleanup(elsewhere.Close)
	for name, row := range map[string]struct {
		status    int
		tokenFile string
		want      int
	}{
		"a builder that accepts the code: accepted":                {status: http.StatusNoContent},
		"a builder that rejects the code: UnprocessableEntity":     {status: http.StatusUnprocessableEntity, want: http.StatusUnprocessableEntity},
		"a builder that responds with 404: ServiceUnavailable":     {status: http.StatusNotFound, want: http.StatusServiceUnavailable},
		"a builder that responds with 500: ServiceUnavailable":     {status: http.StatusInternalServerError, want: http.StatusServiceUnavailable},
		"a builder that redirects: ServiceUnavailable":             {status: http.StatusTemporaryRedirect, want: http.StatusServiceUnavailable},
		"an unreadable token file: ServiceUnavailable":             {status: http.StatusOK, tokenFile: filepath.Join(t.TempDir(), "none"), want: http.StatusServiceUnavailable},
		"a builder that closes the connection: ServiceUnavailable": {want: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if row.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte(strings.Repeat("x", 1<<20)))
			}))
			t.Cleanup(server.Close)
			b, err := NewCodeBuilder(server.URL, row.tokenFile)
			if err != nil {
				t.Fatal(err)
			}
			from := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("code"))
			err = b.upload(t.Context(), &korifiv1alpha1.CFPackage{}, from.Body, from)
			if row.want == 0 && err != nil || row.want != 0 && !apierrors.HasStatus(err, row.want) || err != nil && len(err.Error()) > 2*maxRefusalBytes {
				t.Errorf("expected %d, found %.100v", row.want, err)
			}
		})
	}
}
