// SPDX-License-Identifier: Apache-2.0

// Package aws stops and starts the EC2 machines of clusters.
//
// Reading order: credentials.go and profile.go (the Secret) → client_cache.go (one client per account, region and endpoint)
// → observe.go → power.go (one bad machine does not hold the others) → errors.go and scrub_message.go (messages for users).
package aws

import (
	"net/http"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/torpor-dev/torpor/actuator"
)

var _ actuator.Actuator = (*Actuator)(nil)

// RequestSender sends the requests of all accounts; *http.Client is one.
type RequestSender interface {
	Do(*http.Request) (*http.Response, error)
}

// Options say how to reach the cloud. The zero Options are good for production.
type Options struct {
	// HTTPClient is shared by all accounts; nil means one with the SDK's timeouts.
	HTTPClient RequestSender
	// Endpoint replaces EC2's own URLs, as the environment variable AWS_ENDPOINT_URL does; a Secret's endpoint_url wins.
	Endpoint string
	// CallTimeout bounds one API call with all its attempts; 0 means 15 s.
	CallTimeout time.Duration
	// Attempts is how often a call is tried while the cloud throttles or does not answer; 0 means 4.
	Attempts int
}

// Actuator stops and starts machines at EC2. It is safe for concurrent use.
type Actuator struct {
	options Options
	clients clientCache
}

// New returns an Actuator; it does not call the cloud.
func New(o Options) *Actuator {
	if o.HTTPClient == nil {
		// Frozen, or each account's client would copy it and hold connections of its own.
		o.HTTPClient = awshttp.NewBuildableClient().Freeze()
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 15 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	return &Actuator{options: o, clients: clientCache{known: map[clientKey]*accountClient{}}}
}

// Platform implements actuator.Actuator.
func (*Actuator) Platform() string { return "aws" }
