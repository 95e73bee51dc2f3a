// SPDX-License-Identifier: Apache-2.0

// Package recordwebhook notes who stops something and who starts it again, where the API server cannot do so by itself (ADR 0038). It refuses
// nothing: whatever goes wrong here, the request goes on without a note.
package recordwebhook

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

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/stoprecord/notes"
)

const (
	// maxBody is how large a question of the API server may be. An object has at most 3 MiB, and there are two in it.
	maxBody = 7 << 20
	// maxUser is how long a name may be that is noted. All annotations of an object together have 256 KiB.
	maxUser = 1 << 10
)

// Register lets a server answer, where config/record/webhook says.
func Register(server webhook.Server) {
	server.Register("/note-clusters", newHandler(noteCluster))
	server.Register("/note-databases", newHandler(func(r notes.Request, _, _ *admittedObject) map[string]string { return notes.NextOfMySQLCluster(r) }))
	server.Register("/note-slumbers", newHandler(noteSlumber))
	server.Register("/note-workloads", newHandler(func(r notes.Request, _, _ *admittedObject) map[string]string { return notes.NextOfWorkload(r) }))
}

func noteCluster(r notes.Request, old, updated *admittedObject) map[string]string {
	return notes.NextOfCluster(r, old.isHibernating(), updated.isHibernating())
}

func noteSlumber(r notes.Request, old, updated *admittedObject) map[string]string {
	return notes.NextOfSlumber(r, r.Version == "" || !reflect.DeepEqual(old.Spec, updated.Spec))
}

// annotator returns the annotations with which a request goes on.
type annotator func(r notes.Request, old, updated *admittedObject) map[string]string

// newHandler answers the API server. A request that it cannot read fails the call, which the configurations ignore; a refusal would hold the
// request up.
func newHandler(next annotator) http.Handler {
	hook := &admission.Webhook{RecoverPanic: new(false), Handler: admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		answer, err := noteRequest(r, next)
		if err != nil {
			log.FromContext(ctx).Error(err, "A request goes on without a note of who sends it", "kind", r.Kind.String(), "namespace", r.Namespace, "name", r.Name)
			return admission.Allowed("").WithWarnings("torpor: who sends this is not noted: " + err.Error())
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

// admittedObject is as much of an object as its notes depend on.
type admittedObject struct {
	Metadata struct {
		Annotations       map[string]string `json:"annotations"`
		ResourceVersion   string            `json:"resourceVersion"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec map[string]any `json:"spec"`
}

func (o *admittedObject) isHibernating() bool {
	return o.Spec["powerState"] == string(hivev1.PowerStateHibernating)
}

// noteRequest answers with a patch of annotations and of nothing else, whatever fields the object may have.
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
	}{"object": {r.Object.Raw, &updated}, "object of before": {r.OldObject.Raw, &old}, "options": {r.Options.Raw, &options}} {
		if len(raw.text) == 0 {
			continue
		}
		if err := json.Unmarshal(raw.text, raw.into); err != nil {
			return admission.Response{}, fmt.Errorf("read the %s: %w", of, err)
		}
	}
	if updated.Metadata.DeletionTimestamp != "" {
		return admission.Allowed(""), nil
	}
	sent := updated.Metadata.Annotations
	patch, err := json.Marshal(listOperations(sent, next(notes.Request{
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

// patchOperation is one of a JSON patch.
type patchOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value,omitempty"`
}

// listOperations are the changes that make of the annotations that are sent those that are wanted.
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
