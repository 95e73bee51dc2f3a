// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxRetryAfter caps the pause that a cloud may request.
	maxRetryAfter = 10 * time.Minute
	// firstRetryPause is the first pause of RetryUnreachable. Each later pause is about twice as long as the one
	// before.
	firstRetryPause = 500 * time.Millisecond
	// maxMessageLetters is the maximum number of characters of a cloud's message that are shown.
	maxMessageLetters = 400
)

// ErrNotJSON is returned if the response is not the expected JSON, for example because it does not come from the API.
var ErrNotJSON = errors.New("expected JSON of this API as the response, found other data")

// StatusError is a response with a status other than 2xx.
type StatusError struct {
	Status int
	Header http.Header
	Body   []byte
	// token is the token in the request.
	token string
}

// Error implements error.
func (r *StatusError) Error() string { return fmt.Sprintf("status %d", r.Status) }

// RetryAfter returns the pause that the cloud requests.
func (r *StatusError) RetryAfter() time.Duration { return ReadRetryAfter(r.Header) }

// ReadRetryAfter returns the seconds in the Retry-After header, capped at maxRetryAfter. It returns zero if the header
// is missing or holds a date.
func ReadRetryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// Class returns the class of the response according to its status and its Retry-After header.
func (r *StatusError) Class() actuator.ErrorClass {
	return errortable.ByStatus().ClassOf(r.Describe("", "", ""))
}

// Describe describes the response for a table of errors, with the code and the message in its body.
func (r *StatusError) Describe(operation, code, message string) errortable.Found {
	return errortable.Found{Operation: operation, Code: code, Message: message, Status: r.Status, HasPause: r.RetryAfter() > 0}
}

// DescribeMissingAnswer describes the error of a call that received no valid response from the API. A failed
// connection, an interruption and a timeout have the same description, because users only need to know that the cloud
// does not respond.
func DescribeMissingAnswer(err error) string {
	switch {
	case errors.Is(err, httpguard.ErrAnswerTooLarge):
		return "the response is larger than allowed"
	case errors.Is(err, httpguard.ErrAddressDenied):
		return httpguard.ErrAddressDenied.Error()
	case errors.Is(err, ErrNotJSON):
		return "the response is not the JSON that the API returns"
	default:
		return "the API does not respond"
	}
}

// Scrub removes secrets, and parts that differ at each call, from a cloud's message, and truncates it.
func Scrub(message string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "<hidden>")
		}
	}
	for _, rule := range []struct{ pattern, instead string }{
		{`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`, "<id>"},
		{`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?`, "<time>"},
	} {
		message = regexp.MustCompile(rule.pattern).ReplaceAllString(message, rule.instead)
	}
	message = strings.Join(strings.Fields(strings.ToValidUTF8(message, "")), " ")
	if letters := []rune(message); len(letters) > maxMessageLetters {
		message = string(letters[:maxMessageLetters]) + "…"
	}
	return message
}

// RetryUnreachable makes a call at most attempts times, while the cloud does not respond. It does not wait for a pause
// that the cloud requests; its caller does, for the whole account.
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

// CallWithTimeout makes a call within a timeout, and converts its error with explain. If ctx itself has ended, it
// returns the error of ctx, which does not describe the cloud.
func CallWithTimeout(ctx context.Context, timeout time.Duration, call func(context.Context) error, explain func(error) error) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := call(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return explain(err)
	}
}
