// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// firstRetryPause doubles from attempt to attempt.
	firstRetryPause = 500 * time.Millisecond
	// maxRetryAfter is the longest pause that is believed.
	maxRetryAfter = 10 * time.Minute
)

// RetryUnreachable tries again while the cloud does not answer. A pause that it asks for is left to the account.
func RetryUnreachable[T any](ctx context.Context, attempts int, do func() (T, error)) (T, error) {
	var result T
	var last error
	pauses := wait.Backoff{Duration: firstRetryPause, Factor: 2, Jitter: 0.2, Steps: attempts}
	err := wait.ExponentialBackoffWithContext(ctx, pauses, func(context.Context) (bool, error) {
		result, last = do()
		return last == nil || actuator.ClassOf(last) != actuator.Unreachable, nil
	})
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, last
}

// ParseRetryAfter reads for how many seconds a cloud wants to be left alone, as its header Retry-After says.
func ParseRetryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
