// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// computeScope is the scope of the token. The roles of the service account limit its rights further.
const computeScope = "https://www.googleapis.com/auth/compute"

// fetchToken sends a request for a token, signed with the key of the service account.
func (a *Actuator) fetchToken(ctx context.Context, account serviceAccount) (cloudrest.AccessToken, error) {
	config := jwt.Config{
		Email: account.ClientEmail, PrivateKey: []byte(account.PrivateKey), PrivateKeyID: account.PrivateKeyID, Scopes: []string{computeScope}, TokenURL: tokenURL,
	}
	// The library sends its request without the context.
	send := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		return a.options.HTTPClient.Transport.RoundTrip(r.WithContext(ctx))
	})
	bound := &http.Client{Transport: send, CheckRedirect: a.options.HTTPClient.CheckRedirect}
	token, err := config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, bound)).Token()
	if err != nil {
		return cloudrest.AccessToken{}, explainLogin(ctx, account, err)
	}
	if token.AccessToken == "" || token.Expiry.IsZero() {
		return cloudrest.AccessToken{}, unreachableErrorf(login, "the response contains no token")
	}
	return cloudrest.AccessToken{Value: token.AccessToken, Expires: token.Expiry}, nil
}

// roundTripperFunc is a transport.
type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// explainLogin converts the error of a login that returned no token.
func explainLogin(ctx context.Context, account serviceAccount, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || failed.Response == nil {
		return unreachableErrorf(login, "%s", cloudrest.DescribeMissingAnswer(err))
	}
	var content struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(failed.Body, &content) // A response without a message still has a status.
	refusal := cloudrest.StatusError{Status: failed.Response.StatusCode, Header: failed.Response.Header}
	switch class := refusal.Class(); {
	case class == actuator.Throttled:
		return &actuator.Error{Class: class, Message: "login: Google Cloud limits the rate of logins and refused this one", RetryAfter: refusal.RetryAfter()}
	case class == actuator.Unreachable || content.Error == "":
		return unreachableErrorf(login, "the API responds with status %d", refusal.Status)
	default:
		return actuator.Errorf(actuator.CredentialsInvalid, "login: %s: %s",
			cloudrest.Scrub(content.Error, account.PrivateKey), cloudrest.Scrub(content.Description, account.PrivateKey))
	}
}
