// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/httpguard"
)

// CloudOptions configures the access to a cloud. The zero value is suitable for production.
type CloudOptions struct {
	// HTTPClient sends the requests of all accounts. If nil, a client that limits the size of responses is used.
	HTTPClient *http.Client
	// Endpoints are the servers that may be called although their addresses are link-local.
	Endpoints httpguard.Endpoints
	// CallTimeout limits one API call; 0 means 15 s.
	CallTimeout time.Duration
	// Clock is the source of the current time; nil means the system clock.
	Clock clock.PassiveClock
	// Attempts is the maximum number of attempts of a listing or a start while the cloud does not respond; 0 means 4.
	Attempts int
}

// WithDefaults returns the options with defaults for all unset fields.
func (o CloudOptions) WithDefaults() CloudOptions {
	if o.HTTPClient == nil {
		o.HTTPClient = NewHTTPClient(o.Endpoints)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	return o
}
