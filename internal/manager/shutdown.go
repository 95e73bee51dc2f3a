// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// drainTime is how long the admission webhooks keep serving after the replica became unready. Until every node has
// removed the replica from the Service, the API server may still call it.
const drainTime = 5 * time.Second

var errEnding = errors.New("this replica is ending")

// extendContext returns a context that ends drainTime after ctx, and a readiness check that fails from the end of
// ctx on.
func extendContext(ctx context.Context, now clock.Clock) (extended context.Context, check func(*http.Request) error) {
	extended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		<-now.After(drainTime)
		cancel()
	})
	return extended, func(*http.Request) error {
		if ctx.Err() != nil {
			return errEnding
		}
		return nil
	}
}
