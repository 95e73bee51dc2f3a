// SPDX-License-Identifier: Apache-2.0

// Package admission implements the admission webhooks for CFApps and CFDeployments. For CFApps, the mutating webhook
// writes the revision that package revision computes, and rejects edits of the revision. The validating webhook checks
// the result after all mutating admission webhooks. For CFDeployments, the webhooks record the requester.
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
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// The paths match the webhooks in config/webhook.
const (
	mutatePath   = "/mutate-cfapps"
	validatePath = "/validate-cfapps"
)

// Webhooks implements the admission webhooks for CFApps and CFDeployments.
type Webhooks struct {
	Clock clock.PassiveClock
	// Manager returns the user name of the manager. Only this user may record another user as the author of a revision.
	Manager func(context.Context) (string, error)
}

// Register adds the webhooks to a server.
func (w Webhooks) Register(server webhook.Server) {
	server.Register(mutatePath, w.NewMutatingWebhook())
	server.Register(validatePath, w.NewValidatingWebhook())
}

// NewMutatingWebhook returns the webhook that sets the annotations of a new or changed CFApp or CFDeployment.
func (w Webhooks) NewMutatingWebhook() *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		if r.Kind.Kind == torporv1alpha1.CFDeploymentKind().Kind {
			return mutateDeployment(r)
		}
		old, updated, by, err := w.decodeApps(ctx, r)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		marks, err := revision.NextRevision(old, updated)
		if err != nil {
			return rejectInvalid(err)
		}
		revision.SetRevisionAnnotations(old, updated, marks, by, w.Clock.Now())
		for name, note := range nextAuthorNotes(old, updated, by) {
			if note == "" {
				delete(updated.Annotations, name)
				continue
			}
			updated.Annotations[name] = note
		}
		return patchAnnotations(r.Object.Raw, updated.Annotations)
	})}
}

// NewValidatingWebhook returns the webhook that rejects objects whose annotations differ from those that the mutating
// webhook sets.
func (w Webhooks) NewValidatingWebhook() *admission.Webhook {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		if r.Kind.Kind == torporv1alpha1.CFDeploymentKind().Kind {
			return validateDeployment(r)
		}
		old, updated, by, err := w.decodeApps(ctx, r)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if err := revision.ValidateRevisionAnnotations(old, updated, by); err != nil {
			return rejectInvalid(err)
		}
		for name, want := range nextAuthorNotes(old, updated, by) {
			if found := updated.Annotations[name]; found != want {
				return rejectInvalid(fmt.Errorf("metadata.annotations[%s]: expected %q, found %.80q; remove the annotation", name, want, found))
			}
		}
		return admission.Allowed("")
	})}
}

// nextAuthorNotes returns the annotations with the user who set the end of a stop, and the user who set the end of an
// exemption from Slumbers. An empty value means that the annotation must be removed.
func nextAuthorNotes(old, updated *korifiv1alpha1.CFApp, by string) map[string]string {
	var before map[string]string
	if old != nil {
		before = old.Annotations
	}
	notes := map[string]string{}
	for _, name := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.SkipUntilAnnotation} {
		notes[name+torporv1alpha1.NotedSuffix] = stoprecord.NextAuthorNote(before, updated.Annotations, name, by)
	}
	return notes
}

// decodeApps returns the app before and after a change, and the author of the change. old is nil for a creation.
func (w Webhooks) decodeApps(ctx context.Context, r admission.Request) (old, updated *korifiv1alpha1.CFApp, by string, err error) {
	old, updated, err = decodeObjects[korifiv1alpha1.CFApp](r)
	if err != nil {
		return nil, nil, "", err
	}
	if old != nil {
		statusannotation.RestoreStatus(old)
	}
	by, err = w.findAuthor(ctx, r, old, updated)
	return old, updated, by, err
}

// findAuthor returns the user who sent a change. If the manager sent the change for a CFDeployment, findAuthor returns
// the user in RevisedByAnnotation instead.
func (w Webhooks) findAuthor(ctx context.Context, r admission.Request, old, updated *korifiv1alpha1.CFApp) (string, error) {
	sender, named := r.UserInfo.Username, updated.Annotations[torporv1alpha1.RevisedByAnnotation]
	deploys := old != nil && updated.Annotations[torporv1alpha1.DeploymentAnnotation] != old.Annotations[torporv1alpha1.DeploymentAnnotation]
	if !deploys || named == "" || named == sender {
		return sender, nil
	}
	manager, err := w.Manager(ctx)
	if err != nil {
		return "", fmt.Errorf("read the manager's user: %w", err)
	}
	if sender == manager {
		return named, nil
	}
	return sender, nil
}

// decodeObjects returns an object before and after a change. old is nil for a creation.
func decodeObjects[T any](r admission.Request) (old, updated *T, err error) {
	updated = new(T)
	err = json.Unmarshal(r.Object.Raw, updated)
	if r.Operation == admissionv1.Update {
		old = new(T)
		err = errors.Join(err, json.Unmarshal(r.OldObject.Raw, old))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("decode the %s: %w", r.Kind.Kind, err)
	}
	return old, updated, nil
}

// patchAnnotations returns a patch that only changes the annotations of an object.
func patchAnnotations(raw []byte, annotations map[string]string) admission.Response {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(raw); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the object: %w", err))
	}
	// A patch computed from the typed object would drop fields unknown to this version.
	u.SetAnnotations(annotations)
	after, err := u.MarshalJSON()
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode the object: %w", err))
	}
	return admission.PatchResponseFromRaw(raw, after)
}

// rejectInvalid returns a response with status 422, because the change itself is invalid. A 403 would mean that the
// author lacks a right.
func rejectInvalid(err error) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
	}}}
}
