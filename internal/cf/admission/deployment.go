// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// mutateDeployment sets the annotations with the user who created a CFDeployment and the user who cancelled it.
func mutateDeployment(r admission.Request) admission.Response {
	old, updated, err := decodeObjects[torporv1alpha1.CFDeployment](r)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	for key, value := range recordedPeople(old, updated, r.UserInfo.Username) {
		if updated.Annotations[key] = value; value == "" {
			delete(updated.Annotations, key)
		}
	}
	return patchAnnotations(r.Object.Raw, updated.Annotations)
}

// validateDeployment rejects a CFDeployment if another admission webhook has changed the annotations that
// mutateDeployment sets.
func validateDeployment(r admission.Request) admission.Response {
	old, updated, err := decodeObjects[torporv1alpha1.CFDeployment](r)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	for key, want := range recordedPeople(old, updated, r.UserInfo.Username) {
		if found := updated.Annotations[key]; found != want {
			return rejectInvalid(fmt.Errorf("metadata.annotations[%s]: expected %q, which Torpor has set; found %q; leave the annotation unchanged",
				key, want, found))
		}
	}
	return admission.Allowed("")
}

// recordedPeople returns the annotations with user names. An empty value means that the annotation must be removed.
func recordedPeople(old, updated *torporv1alpha1.CFDeployment, sender string) map[string]string {
	people := map[string]string{torporv1alpha1.RequestedByAnnotation: sender, torporv1alpha1.CancelledByAnnotation: ""}
	if old != nil {
		for key := range people {
			people[key] = old.Annotations[key]
		}
	}
	if updated.Spec.Cancelled && (old == nil || !old.Spec.Cancelled) {
		people[torporv1alpha1.CancelledByAnnotation] = sender
	}
	return people
}

// AskIdentity returns a function that reads the client's own user name from the API server, and caches it.
func AskIdentity(c client.Client) func(context.Context) (string, error) {
	var known string
	var mu sync.Mutex
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != "" {
			return known, nil
		}
		review := &authenticationv1.SelfSubjectReview{}
		if err := c.Create(ctx, review); err != nil {
			return "", fmt.Errorf("review the manager's own user: %w", err)
		}
		known = review.Status.UserInfo.Username
		return known, nil
	}
}
