// SPDX-License-Identifier: Apache-2.0

package manager

import "net/http"

// plainWatches requests uncompressed watches. Since Kubernetes 1.37, API servers compress the initial objects of a
// watch (feature gate WatchListCompression), and the client keeps a decoder of 44 KiB for as long as the watch
// lasts. A manager of 30 namespaces has 1,400 watches.
type plainWatches struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t plainWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		r = r.Clone(r.Context())
		// http.Transport requests gzip only if the request has no Accept-Encoding header.
		r.Header.Set("Accept-Encoding", "identity")
	}
	return t.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper returns the wrapped transport, for client-go.
func (t plainWatches) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
