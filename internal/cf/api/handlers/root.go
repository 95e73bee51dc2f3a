// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

// MinClientVersion is the first version of the cf client that reliably logs in with a kubeconfig.
const MinClientVersion = "8.5.0"

func getRoot(_ context.Context, r *Request) (Response, error) { return ok(presenter.ForRoot(r.Base)) }

func getResources(_ context.Context, r *Request) (Response, error) {
	return ok(presenter.ForResources(r.Base))
}

func getInfo(_ context.Context, r *Request) (Response, error) {
	return ok(map[string]any{"name": "torpor", "build": "", "version": 0, "cli_version": map[string]string{"minimum": MinClientVersion, "recommended": ""}, "links": presenter.Links{"self": {HRef: r.Base + "/v3/info"}}})
}

func getHealth(context.Context, *Request) (Response, error) {
	return ok(map[string]string{"status": "ok"})
}

// getReadiness returns an error while this replica's cache may be stale, so requests are sent to another replica.
func getReadiness(_ context.Context, r *Request) (Response, error) {
	return respond(map[string]string{"status": "ok"}, r.Store.CheckFreshness())
}

func getWhoAmI(_ context.Context, r *Request) (Response, error) {
	kind := "User"
	if r.Caller.IsServiceAccount() {
		kind = "ServiceAccount"
	}
	return ok(map[string]string{"name": r.Caller.Name, "kind": kind})
}

// createToken returns a token, which some clients request before they stream logs. The token has no signature and
// grants no access, because each request is authenticated by its own credentials.
func createToken(_ context.Context, r *Request) (Response, error) {
	const valid = time.Hour
	encode := func(part any) string {
		raw, _ := json.Marshal(part)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	expires := r.Clock.Now().Add(valid).Unix()
	jwt := encode(map[string]string{"alg": "none", "typ": "JWT"}) + "." + encode(map[string]any{"exp": expires, "iss": "torpor"}) + "." + encode("none")
	return ok(map[string]any{"access_token": jwt, "refresh_token": jwt, "token_type": "bearer", "expires_in": int(valid.Seconds())})
}
