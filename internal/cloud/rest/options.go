// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/egress"
)

// CloudOptions say how to reach a cloud. The zero CloudOptions are good for production.
type CloudOptions struct {
	// HTTPClient sends the requests of all accounts; nil means one with budgets for answers.
	HTTPClient *http.Client
	// Endpoints are the servers whose addresses may be dialled although they are link-local.
	Endpoints egress.Endpoints
	// CallTimeout bounds one API call; 0 means 15 s.
	CallTimeout time.Duration
	// Clock tells when a token ends; nil means the machine's.
	Clock clock.PassiveClock
	// Attempts is how often a listing or a start is tried while the cloud does not answer; 0 means 4.
	Attempts int
}

// WithDefaults fills in what is not set.
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
