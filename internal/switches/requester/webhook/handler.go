// SPDX-License-Identifier: Apache-2.0

// Package webhook records the user who stops or starts an object, for API servers that do not support the policies of
// config/record (ADR 0038). It never denies a request: on any error, the request proceeds without a record.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/requester"
)

const (
	// maxBody is the maximum size of an admission review. An object has at most 3 MiB, and a review contains two
	// objects.
	maxBody = 7 << 20
	// maxUser is the maximum length of a recorded user name. All annotations of an object together have at most 256
	// KiB.
	maxUser = 1 << 10
)

// Register adds the handlers at the paths of config/record/webhook.
func Register(server webhook.Server) {
	server.Register("/note-slumbers", newHandler(noteSlumber))
	for _, of := range kinds.ListBuiltIn().ListNotes() {
		server.Register(of.Path, newHandler(func(r requester.Request, old, updated *admittedObject) map[string]string {
			return of.NextAnnotations(r, old.Spec, updated.Spec)
		}))
	}
}

func noteSlumber(r requester.Request, old, updated *admittedObject) map[string]string {
	return requester.NextOfSlumber(r, r.Version == "" || !reflect.DeepEqual(old.Spec, updated.Spec))
}

// annotator returns the annotations that the object gets if the request is admitted.
type annotator func(r requester.Request, old, updated *admittedObject) map[string]string

// newHandler handles admission reviews. A review that it cannot read is an HTTP error, which the webhook
// configurations ignore; a denial would block the user's request.
func newHandler(next annotator) http.Handler {
	hook := &admission.Webhook{RecoverPanic: new(false), Handler: admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		answer, err := noteRequest(r, next)
		if err != nil {
			log.FromContext(ctx).Error(err, "A request proceeds without a record of its requester", "kind", r.Kind.String(), "namespace", r.Namespace, "name", r.Name)
			return admission.Allowed("").WithWarnings("torpor: the requester is not recorded: " + err.Error())
		}
		return answer
	})}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 || r.ContentLength > maxBody {
			http.Error(w, fmt.Sprintf("expected at most %d bytes, found %d", maxBody, r.ContentLength), http.StatusRequestEntityTooLarge)
			return
		}
		hook.ServeHTTP(w, r)
	})
}

// admittedObject contains the fields of an object that determine the annotations.
type admittedObject struct {
	Metadata struct {
		Annotations       map[string]string `json:"annotations"`
		ResourceVersion   string            `json:"resourceVersion"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec map[string]any `json:"spec"`
}

// noteRequest returns a response whose patch changes only annotations.
func noteRequest(r admission.Request, next annotator) (admission.Response, error) {
	if len(r.UserInfo.Username) > maxUser {
		return admission.Response{}, fmt.Errorf("expected a user with a name of at most %d bytes, found %d", maxUser, len(r.UserInfo.Username))
	}
	var old, updated admittedObject
	var options struct {
		FieldManager string `json:"fieldManager"`
	}
	for of, raw := range map[string]struct {
		text []byte
		into any
	}{"object": {r.Object.Raw, &updated}, "old object": {r.OldObject.Raw, &old}, "options": {r.Options.Raw, &options}} {
		if len(raw.text) == 0 {
			continue
		}
		if err := json.Unmarshal(raw.text, raw.into); err != nil {
			return admission.Response{}, fmt.Errorf("decode the %s: %w", of, err)
		}
	}
	if updated.Metadata.DeletionTimestamp != "" {
		return admission.Allowed(""), nil
	}
	sent := updated.Metadata.Annotations
	patch, err := json.Marshal(listOperations(sent, next(requester.Request{
		User: r.UserInfo.Username, FieldManager: options.FieldManager, Version: old.Metadata.ResourceVersion,
		Before: old.Metadata.Annotations, Sent: sent,
	}, &old, &updated)))
	if err != nil {
		return admission.Response{}, fmt.Errorf("write the patch: %w", err)
	}
	answer := admission.Allowed("")
	answer.Patch, answer.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	return answer, nil
}

// patchOperation is an operation of a JSON patch.
type patchOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value,omitempty"`
}

// listOperations returns the patch operations that turn the sent annotations into the desired ones.
func listOperations(sent, wanted map[string]string) []patchOperation {
	operations := []patchOperation{}
	if sent == nil && len(wanted) > 0 {
		operations = append(operations, patchOperation{"add", "/metadata/annotations", map[string]string{}})
	}
	for name, value := range wanted {
		if before, isSent := sent[name]; !isSent || before != value {
			operations = append(operations, patchOperation{"add", pathOf(name), value})
		}
	}
	for name := range sent {
		if _, isWanted := wanted[name]; !isWanted {
			operations = append(operations, patchOperation{"remove", pathOf(name), nil})
		}
	}
	slices.SortFunc(operations, func(a, b patchOperation) int { return strings.Compare(a.Path, b.Path) })
	return operations
}

func pathOf(annotation string) string {
	return "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(annotation)
}
