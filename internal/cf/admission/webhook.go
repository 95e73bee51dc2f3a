// SPDX-License-Identifier: Apache-2.0

// Package admission is the admission of CFApps: it writes the revision that the rule in package revision demands, refuses
// edits of it, and looks again when every other admission has had its say. Of CFDeployments it records who asked.
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
	"github.com/torpor-dev/torpor/internal/statusannotation"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// Where the API server asks, as config/webhook says.
const (
	mutatePath   = "/mutate-cfapps"
	validatePath = "/validate-cfapps"
)

// Webhooks are the admission of CFApps and CFDeployments.
type Webhooks struct {
	Clock clock.PassiveClock
	// Manager returns the name of the only user who may record a revision as another's.
	Manager func(context.Context) (string, error)
}

// Register lets a server answer.
func (w Webhooks) Register(server webhook.Server) {
	server.Register(mutatePath, w.NewMutatingWebhook())
	server.Register(validatePath, w.NewValidatingWebhook())
}

// NewMutatingWebhook writes the annotations that follow from a change.
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

// NewValidatingWebhook refuses what does not carry the annotations that Mutating writes.
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
				return rejectInvalid(fmt.Errorf("metadata.annotations[%s]: expected %q, found %.80q; leave it out", name, want, found))
			}
		}
		return admission.Allowed("")
	})}
}

// nextAuthorNotes notes who says when a stop ends, and until when Slumbers leave the app alone; a note that there is not to be is empty.
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

// decodeApps are the app before and after, and whose change it is; there is none before a creation.
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

// findAuthor returns who sends a change or, if that is the manager on behalf of a deployment, whom it names.
func (w Webhooks) findAuthor(ctx context.Context, r admission.Request, old, updated *korifiv1alpha1.CFApp) (string, error) {
	sender, named := r.UserInfo.Username, updated.Annotations[torporv1alpha1.RevisedByAnnotation]
	deploys := old != nil && updated.Annotations[torporv1alpha1.DeploymentAnnotation] != old.Annotations[torporv1alpha1.DeploymentAnnotation]
	if !deploys || named == "" || named == sender {
		return sender, nil
	}
	manager, err := w.Manager(ctx)
	if err != nil {
		return "", fmt.Errorf("find out who the manager is: %w", err)
	}
	if sender == manager {
		return named, nil
	}
	return sender, nil
}

// decodeObjects are an object before and after; there is none before a creation.
func decodeObjects[T any](r admission.Request) (old, updated *T, err error) {
	updated = new(T)
	err = json.Unmarshal(r.Object.Raw, updated)
	if r.Operation == admissionv1.Update {
		old = new(T)
		err = errors.Join(err, json.Unmarshal(r.OldObject.Raw, old))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the %s: %w", r.Kind.Kind, err)
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
