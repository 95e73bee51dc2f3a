// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// DormantPolicy is how admission webhooks answer while their group is dormant.
type DormantPolicy string

// The policies.
const (
	// Refuse answers with HTTP 503, so that the failurePolicy of the webhook configuration decides. It is the default.
	Refuse DormantPolicy = "Refuse"
	// Allow admits what comes, unchanged and with a warning.
	Allow DormantPolicy = "Allow"
)

// newDormantHandler returns the handler of a path whose group does not run. Only what is surely an admission webhook can allow.
func newDormantHandler(path string, of *PathOwner, awake http.Handler) http.Handler {
	message := fmt.Sprintf("webhook %s is dormant: its conditional group %q does not run", path, of.Group)
	if _, admits := awake.(*admission.Webhook); admits && of.DormantPolicy == Allow {
		return &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			return admission.Allowed("").WithWarnings(message)
		})}
	}
	return refusalHandler(message)
}

// refusalHandler is a message that the API server shows to the user: of a 503 it reads a Status, but no text.
type refusalHandler string

func (message refusalHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // An error means that the API server has gone away.
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: string(message),
	})
}
