// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/torpor-dev/torpor/internal/switches/requester"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	m.Run()
}

// mux implements as much of a webhook server as Register needs.
type mux struct {
	webhook.Server
	*http.ServeMux
}

func (m mux) Register(path string, hook http.Handler) { m.Handle(path, hook) }

func ask(t *testing.T, path string, r admissionv1.AdmissionRequest) admissionv1.AdmissionReview {
	t.Helper()
	r.UID = "asked"
	if r.UserInfo.Username == "" {
		r.UserInfo = authenticationv1.UserInfo{Username: "alice"}
	}
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &r}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	server := mux{ServeMux: http.NewServeMux()}
	Register(server)
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	server.ServeHTTP(answer, request)
	var found admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &found); err != nil || found.Response == nil {
		t.Fatalf("expected an answer, found %d %s (%v)", answer.Code, answer.Body, err)
	}
	return found
}

func raw(text string) (r runtime.RawExtension) {
	if text != "" {
		r.Raw = []byte(text)
	}
	return r
}

// TestRequestsAreNoted sends admission reviews as an API server encodes them.
func TestRequestsAreNoted(t *testing.T) {
	const noted = `{"op":"add","path":"/metadata/annotations/torpor.dev~1request-version","value":"7"},{"op":"add","path":"/metadata/annotations/torpor.dev~1requested-by","value":"alice"}`
	for name, row := range map[string]struct{ path, old, updated, options, want string }{
		"a stop of a cluster records its requester": {
			"/note-clusters", `{"metadata":{"resourceVersion":"7"},"spec":{"powerState":"Running"}}`, `{"metadata":{"resourceVersion":"7"},"spec":{"powerState":"Hibernating"}}`, "",
			`[{"op":"add","path":"/metadata/annotations","value":{}},` + noted + `]`,
		},
		"a new hibernating cluster records new instead of a version": {
			"/note-clusters", "", `{"metadata":{"annotations":{"a":"b"}},"spec":{"powerState":"Hibernating"}}`, "", `[` + strings.Replace(noted, `"7"`, `"new"`, 1) + `]`,
		},
		"a change to the labels of a cluster records no requester": {
			"/note-clusters", `{"metadata":{"resourceVersion":"7"}}`, `{"metadata":{"labels":{"a":"b"}}}`, "", `[]`,
		},
		"a cluster that is being deleted records no requester": {
			"/note-clusters", `{"metadata":{"resourceVersion":"7"}}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"torpor.dev/requested-by":"x"}}}`, "", ``,
		},
		"a forged requester is removed": {
			"/note-clusters", `{"metadata":{"resourceVersion":"7"}}`, `{"metadata":{"annotations":{"torpor.dev/requested-by":"the-ceo"}}}`, "",
			`[{"op":"remove","path":"/metadata/annotations/torpor.dev~1requested-by"}]`,
		},
		"a stop of clustering records its requester": {
			"/note-databases", `{"metadata":{"resourceVersion":"7","annotations":{"a":"b"}}}`, `{"metadata":{"annotations":{"moco.cybozu.com/clustering-stopped":"true"}}}`, "",
			`[` + strings.ReplaceAll(noted, "torpor.dev~1", "torpor.dev~1clustering-") + `]`,
		},
		"a new Slumber records its author": {
			"/note-slumbers", "", `{"metadata":{"annotations":{"torpor.dev/requested-by":"the-ceo"}},"spec":{"suspend":true}}`, "",
			`[{"op":"add","path":"/metadata/annotations/torpor.dev~1requested-by","value":"alice"}]`,
		},
		"a change to the spec of a Slumber records the author": {
			"/note-slumbers", `{"metadata":{"resourceVersion":"7","annotations":{"a":"b"}},"spec":{"suspend":true}}`, `{"metadata":{"annotations":{"a":"b"}},"spec":{}}`, "",
			`[{"op":"add","path":"/metadata/annotations/torpor.dev~1requested-by","value":"alice"}]`,
		},
		"a change to the labels of a Slumber records no author": {
			"/note-slumbers", `{"metadata":{"resourceVersion":"7"},"spec":{"a":1,"b":[{}]}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"b":[{}],"a":1}}`, "", `[]`,
		},
		"a stop of a Deployment records its requester": {
			"/note-workloads", `{"metadata":{"resourceVersion":"7","annotations":{"a":"b"}}}`, `{"metadata":{"annotations":{"torpor.dev/stopped":"true"}}}`, "", `[` + noted + `]`,
		},
		"the record of a Deployment is restored if a user replaces all annotations": {
			"/note-workloads", `{"metadata":{"resourceVersion":"7","annotations":{"torpor.dev/stops":"[]"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`, `{"fieldManager":"kubectl-rollout"}`,
			`[{"op":"add","path":"/metadata/annotations/torpor.dev~1stops","value":"[]"}]`,
		},
		"the manager may remove the record of a Deployment": {
			"/note-workloads", `{"metadata":{"resourceVersion":"7","annotations":{"torpor.dev/stops":"[]"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`, `{"fieldManager":"torpor-workloads"}`, `[]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, row.path, admissionv1.AdmissionRequest{OldObject: raw(row.old), Object: raw(row.updated), Options: raw(row.options)})
			if !answer.Response.Allowed || string(answer.Response.Patch) != row.want {
				t.Errorf("expected an allowed request with the patch\n%s, found %t and\n%s", row.want, answer.Response.Allowed, answer.Response.Patch)
			}
		})
	}
}

// TestUnrecordableRequestsAreAllowed sends requests that cannot be noted. A denial would prevent a user from
// starting an object.
func TestUnrecordableRequestsAreAllowed(t *testing.T) {
	for name, row := range map[string]struct {
		request admissionv1.AdmissionRequest
		want    string
	}{
		"a malformed object: allowed without a note": {admissionv1.AdmissionRequest{Object: raw(`{"metadata":{"annotations":["a"]}}`)}, "decode the object"},
		"a malformed old object: allowed without a note": {
			admissionv1.AdmissionRequest{Object: raw(`{}`), OldObject: raw(`{"metadata":"a"}`)}, "decode the old object",
		},
		"a user whose name is too long: allowed without a note": {
			admissionv1.AdmissionRequest{Object: raw(`{}`), UserInfo: authenticationv1.UserInfo{Username: strings.Repeat("a", maxUser+1)}}, "at most 1024 bytes, found 1025",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, "/note-clusters", row.request)
			if !answer.Response.Allowed || len(answer.Response.Patch) != 0 || !strings.Contains(fmt.Sprint(answer.Response.Warnings), row.want) {
				t.Errorf("expected an allowed request with a warning about %q, found %+v", row.want, answer.Response)
			}
		})
	}
}

// TestMalformedReviewsAreFailedCalls has calls fail with an HTTP error, to which the API server applies failurePolicy.
// The API server does not apply failurePolicy to a response that denies the request.
func TestMalformedReviewsAreFailedCalls(t *testing.T) {
	server := httptest.NewUnstartedServer(newHandler(func(requester.Request, *admittedObject, *admittedObject) map[string]string { panic("a mistake") }))
	server.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	question, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &admissionv1.AdmissionRequest{UID: "a", Object: raw(`{}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{"a body that is too large": strings.Repeat("a", maxBody+1), "a handler that panics": string(question)} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			answer, err := server.Client().Do(request)
			if err != nil {
				return // The connection was closed, which also is a failed call.
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode == http.StatusOK {
				t.Errorf("expected a failed call, found %s", answer.Status)
			}
		})
	}
}
