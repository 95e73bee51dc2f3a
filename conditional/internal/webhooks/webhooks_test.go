// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// fakeServer is a webhook server without a listener; like the real one, it panics on a path that it has.
type fakeServer struct {
	webhook.Server
	mux *http.ServeMux
}

func newFakeServer() fakeServer { return fakeServer{mux: http.NewServeMux()} }

func (s fakeServer) Register(path string, handler http.Handler) { s.mux.Handle(path, handler) }

func (s fakeServer) ask(path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.mux.ServeHTTP(w, r)
	return w
}

func (s fakeServer) want(t *testing.T, path, body string) {
	t.Helper()
	if diff := cmp.Diff(body, s.ask(path, "").Body.String()); diff != "" {
		t.Errorf("answer on %s (-want +got):\n%s", path, diff)
	}
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

func newMultiplexer() *Multiplexer {
	var all ManagerMultiplexers
	return all.ForManager(struct{ manager.Manager }{})
}

func tenant(group string) *PathOwner { return &PathOwner{Group: group, Ended: make(chan struct{})} }

func TestManagersHaveTheirOwnPaths(t *testing.T) {
	var all ManagerMultiplexers
	one, two := &struct{ manager.Manager }{}, &struct{ manager.Manager }{}
	if first := all.ForManager(one); all.ForManager(one) != first || all.ForManager(two) == first {
		t.Error("want the same multiplexer for the same manager, and another one for another")
	}
}

func TestOnePathAfterAnother(t *testing.T) {
	m, server := newMultiplexer(), newFakeServer()
	first, second, third := tenant("first"), tenant("second"), tenant("third")
	ended := make(chan struct{})
	second.Ended = ended
	if err := m.ClaimPath(server, "/hook", say("first"), first); err != nil {
		t.Fatal(err)
	}
	server.want(t, "/hook", "first")
	if err := m.ClaimPath(server, "/hook", say("second"), second); err == nil || !strings.Contains(err.Error(), `"first"`) {
		t.Errorf("claim of a taken path: %v, want an error that names the group that has it", err)
	}
	first.ReleasePaths()
	if m.slots["/hook"].current.Load().active != nil {
		t.Error("the path keeps the handler, and with it clients and caches, of a group that has left")
	}
	if err := m.ClaimPath(server, "/hook", say("second"), second); err != nil {
		t.Fatal(err)
	}
	server.want(t, "/hook", "second")
	close(ended) // Nobody has called Leave yet.
	if got := server.ask("/hook", "").Code; got != http.StatusServiceUnavailable {
		t.Errorf("status %d after the end of the scope, want 503", got)
	}
	if err := m.ClaimPath(server, "/hook", say("third"), third); err != nil {
		t.Fatal(err)
	}
	second.ReleasePaths()
	server.want(t, "/hook", "third")
}

func TestATenantThatHasLeftGetsNothing(t *testing.T) {
	m, server, late := newMultiplexer(), newFakeServer(), tenant("late")
	late.ReleasePaths()
	if err := m.ClaimPath(server, "/hook", say("late"), late); !errors.Is(err, ErrReleased) {
		t.Errorf("claim: %v, want %v", err, ErrReleased)
	}
	if err := m.ClaimPath(server, "/hook", say("next"), tenant("next")); err != nil {
		t.Fatal(err)
	}
	server.want(t, "/hook", "next")
}

func TestDormantAnswers(t *testing.T) {
	message := `webhook /hook is dormant: its conditional group "widgets" does not run`
	refused := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: message,
	}
	judge := &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		return admission.Denied("not today")
	})}
	tests := map[string]struct {
		policy  DormantPolicy
		handler http.Handler
		allows  bool
	}{
		"refuse is the default":                            {"", judge, false},
		"refuse answers 503":                               {Refuse, judge, false},
		"allow admits with a warning":                      {Allow, judge, true},
		"what may be something else is refused in any way": {Allow, say("awake"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, server, group := newMultiplexer(), newFakeServer(), tenant("widgets")
			group.DormantPolicy = test.policy
			if err := m.ClaimPath(server, "/hook", test.handler, group); err != nil {
				t.Fatal(err)
			}
			group.ReleasePaths()
			w := server.ask("/hook", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"one"}}`)
			if !test.allows {
				var got metav1.Status
				decode(t, w, &got)
				if diff := cmp.Diff(refused, got); diff != "" || w.Code != http.StatusServiceUnavailable {
					t.Errorf("answered %d (-want +got):\n%s", w.Code, diff)
				}
				return
			}
			var got admissionv1.AdmissionReview
			decode(t, w, &got)
			if r := got.Response; w.Code != http.StatusOK || !r.Allowed || r.UID != "one" || cmp.Diff([]string{message}, r.Warnings) != "" {
				t.Errorf("answered %d with %+v, want the request admitted with a warning", w.Code, r)
			}
		})
	}
}

func decode(t *testing.T, from *httptest.ResponseRecorder, into any) {
	t.Helper()
	if err := json.NewDecoder(from.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func TestConversionNeverSleeps(t *testing.T) {
	m, server := newMultiplexer(), newFakeServer()
	first, second := tenant("first"), tenant("second")
	if err := m.ClaimPath(server, convertPath, say("first"), first); err != nil {
		t.Fatal(err)
	}
	first.ReleasePaths()
	server.want(t, convertPath, "first")
	if err := m.ClaimPath(server, convertPath, say("second"), second); err != nil {
		t.Fatal(err)
	}
	server.want(t, convertPath, "second")
}

func TestConversionThatIsSetUpOutside(t *testing.T) {
	m, server := newMultiplexer(), newFakeServer()
	server.Register(convertPath, say("outside"))
	if err := m.ClaimPath(server, convertPath, say("group"), tenant("group")); err != nil {
		t.Fatal(err)
	}
	server.want(t, convertPath, "outside")
	if err := m.ConverterRegistry(conversion.NewRegistry()).RegisterConverter(schema.GroupKind{Kind: "Widget"}, named("group")); err != nil {
		t.Fatal(err)
	}
	if err := m.ClaimPath(server, convertPath, say("group"), tenant("group")); err == nil || !strings.Contains(err.Error(), "WithConverter") {
		t.Errorf("claim: %v, want an error, for the converter would never be asked", err)
	}
}

type named string

func (named) ConvertObject(context.Context, runtime.Object, runtime.Object) error { return nil }

func TestConverters(t *testing.T) {
	widget, gadget := schema.GroupKind{Kind: "Widget"}, schema.GroupKind{Kind: "Gadget"}
	outer := conversion.NewRegistry()
	if err := outer.RegisterConverter(gadget, named("outside")); err != nil {
		t.Fatal(err)
	}
	registry := newMultiplexer().ConverterRegistry(outer)
	if _, ok := registry.GetConverter(widget); ok {
		t.Error("there is a converter before any was registered")
	}
	for _, start := range []named{"first", "second"} {
		if err := registry.RegisterConverter(widget, start); err != nil {
			t.Fatal(err)
		}
		if got, _ := registry.GetConverter(widget); got != start {
			t.Errorf("converter is %v, want that of the %s start", got, start)
		}
	}
	if got, _ := registry.GetConverter(gadget); got != named("outside") {
		t.Errorf("converter is %v, want the one from outside", got)
	}
	if err := registry.RegisterConverter(gadget, named("group")); err == nil || !strings.Contains(err.Error(), "Gadget") {
		t.Errorf("converter of a kind that has one outside: %v, want an error that names the kind", err)
	}
	if _, ok := outer.GetConverter(widget); ok {
		t.Error("the outer registry was written to, which has no lock")
	}
}
