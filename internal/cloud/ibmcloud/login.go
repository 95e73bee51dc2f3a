// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

const (
	// tokenURL issues tokens for API keys.
	tokenURL = "https://iam.cloud.ibm.com/identity/token"
	// apiKeyGrant is the grant type of requests to tokenURL.
	apiKeyGrant = "urn:ibm:params:oauth:grant-type:apikey"
	// maxTokenLife limits the lifetime of a token that a response may claim.
	maxTokenLife = 24 * time.Hour
)

// fetchToken exchanges the API key for a token.
func (a *Actuator) fetchToken(ctx context.Context, apiKey string) (cloudrest.AccessToken, error) {
	form := url.Values{"grant_type": {apiKeyGrant}, "apikey": {apiKey}}
	asked, err := http.NewRequestWithContext(ctx, http.MethodPost, tokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return cloudrest.AccessToken{}, unreachableErrorf(login, "the request cannot be made")
	}
	asked.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if err := cloudrest.Send(a.options.HTTPClient, asked, &answer); err != nil {
		return cloudrest.AccessToken{}, explainLogin(ctx, apiKey, err)
	}
	life := time.Duration(min(answer.ExpiresIn, int64(maxTokenLife/time.Second))) * time.Second
	if answer.AccessToken == "" || life <= 0 {
		return cloudrest.AccessToken{}, unreachableErrorf(login, "the response contains no token")
	}
	return cloudrest.AccessToken{Value: answer.AccessToken, Expires: a.options.Clock.Now().Add(life)}, nil
}

// explainLogin converts the error of a login that returned no token.
func explainLogin(ctx context.Context, apiKey string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	refusal, ok := errors.AsType[*cloudrest.StatusError](err)
	if !ok {
		return unreachableErrorf(login, "%s", cloudrest.DescribeMissingAnswer(err))
	}
	var content struct {
		Code    string `json:"errorCode"`
		Message string `json:"errorMessage"`
	}
	_ = json.Unmarshal(refusal.Body, &content) // A response without a message still has a status.
	switch class := refusal.Class(); {
	case class == actuator.Throttled:
		return &actuator.Error{Class: class, Message: "login: IBM Cloud limits the rate of logins and refused this one", RetryAfter: refusal.RetryAfter()}
	case class == actuator.Unreachable || content.Code == "":
		return unreachableErrorf(login, "the API responds with status %d", refusal.Status)
	default:
		return actuator.Errorf(actuator.CredentialsInvalid, "login: %s: %s", cloudrest.Scrub(content.Code, apiKey), cloudrest.Scrub(content.Message, apiKey))
	}
}
