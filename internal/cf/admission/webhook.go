// SPDX-License-Identifier: Apache-2.0

// Package admission is the admission of CFApps: it writes the revision that the rule in package revision demands, refuses
// edits of it, and looks again when every other admission has had its say.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/statusannotation"
)

// Where the API server asks, as config/webhook says.
const (
	mutatePath   = "/mutate-cfapps"
	validatePath = "/validate-cfapps"
)

// RegisterWebhooks lets a server answer for CFApps.
func RegisterWebhooks(server webhook.Server, now clock.PassiveClock) {
	server.Register(mutatePath, NewMutatingWebhook(now))
	server.Register(validatePath, NewValidatingWebhook())
}

// NewMutatingWebhook writes the annotations that follow from a change.
func NewMutatingWebhook(now clock.PassiveClock) *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		old, updated, err := decodeApps(r)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		marks, err := revision.NextRevision(old, updated)
		if err != nil {
			return rejectInvalid(err)
		}
		revision.SetRevisionAnnotations(old, updated, marks, r.UserInfo.Username, now.Now())
		return patchAnnotations(r.Object.Raw, updated.Annotations)
	})}
}

// NewValidatingWebhook refuses what does not carry the annotations that Mutating writes.
func NewValidatingWebhook() *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		old, updated, err := decodeApps(r)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if err := revision.ValidateRevisionAnnotations(old, updated, r.UserInfo.Username); err != nil {
			return rejectInvalid(err)
		}
		return admission.Allowed("")
	})}
}

// decodeApps are the app before and after; there is none before a creation.
func decodeApps(r admission.Request) (old, updated *korifiv1alpha1.CFApp, err error) {
	updated = &korifiv1alpha1.CFApp{}
	err = json.Unmarshal(r.Object.Raw, updated)
	if r.Operation == admissionv1.Update {
		old = &korifiv1alpha1.CFApp{}
		err = errors.Join(err, json.Unmarshal(r.OldObject.Raw, old))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the app: %w", err)
	}
	if old != nil {
		statusannotation.RestoreStatus(old)
	}
	return old, updated, nil
}

// patchAnnotations changes the annotations of an object and nothing else, whatever fields it may have.
func patchAnnotations(raw []byte, annotations map[string]string) admission.Response {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(raw); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the app: %w", err))
	}
	// The object is not written from the typed one, which would drop fields that this version does not know.
	u.SetAnnotations(annotations)
	after, err := u.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("write the app: %w", err))
	}
	return admission.PatchResponseFromRaw(raw, after)
}

// rejectInvalid answers 422, not 403: the change is invalid, and its author does not lack a right.
func rejectInvalid(err error) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
	}}}
}
