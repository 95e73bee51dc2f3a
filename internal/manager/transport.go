// SPDX-License-Identifier: Apache-2.0

package manager

import "net/http"

// plainWatches asks for uncompressed watches. API servers since Kubernetes 1.37 compress the objects with which a watch
// begins (feature gate WatchListCompression), and the client keeps a decoder of 44 KiB for as long as the watch lasts.
// A manager of 30 namespaces has 1,400 watches.
type plainWatches struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t plainWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		r = r.Clone(r.Context())
		// A transport asks for gzip, and decodes it, only if the request names no encoding.
		r.Header.Set("Accept-Encoding", "identity")
	}
	return t.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport that this one wraps.
func (t plainWatches) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
