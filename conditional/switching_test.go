// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// The tests below store parts of the manager in places that the start of a group cannot change.

type readFunc func(context.Context, client.ObjectKey, client.Object) error

func readWith(r client.Reader) readFunc {
	return func(ctx context.Context, key client.ObjectKey, obj client.Object) error { return r.Get(ctx, key, obj) }
}

// helper stores its client in the same way as the helpers of many projects.
type helper struct{ reader client.Reader }

func (h *helper) read(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	return h.reader.Get(ctx, key, obj)
}

// placesOfClients returns functions that read with a client taken from the manager before any group started.
func placesOfClients(mgr manager.Manager) map[string]readFunc {
	c := mgr.GetClient()
	get, getClient, byName := c.Get, mgr.GetClient, map[string]client.Client{"one": c}
	return map[string]readFunc{
		"unexported-field":     (&helper{c}).read,
		"closure":              func(ctx context.Context, key client.ObjectKey, obj client.Object) error { return c.Get(ctx, key, obj) },
		"method-of-the-client": func(ctx context.Context, key client.ObjectKey, obj client.Object) error { return get(ctx, key, obj) },
		"method-of-the-manager": func(ctx context.Context, key client.ObjectKey, obj client.Object) error {
			return getClient().Get(ctx, key, obj)
		},
		"map": func(ctx context.Context, key client.ObjectKey, obj client.Object) error {
			return byName["one"].Get(ctx, key, obj)
		},
		"field-owner": readWith(client.WithFieldOwner(c, "me")),
		"namespace":   readWith(client.NewNamespacedClient(c, "default")),
		"api-reader":  readWith(mgr.GetAPIReader()),
		"cache":       readWith(mgr.GetCache()),
	}
}

// placeReconciler reads the object of each request with a function of placesOfClients.
type placeReconciler struct {
	read readFunc
	seen chan error

	mu   sync.Mutex
	late func(client.ObjectKey) error // late reads with the context of the last request
}

func (r *placeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	err := r.read(ctx, req.NamespacedName, &Widget{})
	r.mu.Lock()
	r.late = func(key client.ObjectKey) error { return r.read(context.WithoutCancel(ctx), key, &Widget{}) }
	r.mu.Unlock()
	r.seen <- err
	return reconcile.Result{}, nil
}

// TestClientsInEveryPlaceFollowTheGroup reinstalls the CRD with another scope and plural each time.
func TestClientsInEveryPlaceFollowTheGroup(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	mgr := s.newManagerFor(s.cfg)
	reconcilers, groups := map[string]*placeReconciler{}, map[string]*Group{}
	for name, read := range placesOfClients(mgr) {
		r := &placeReconciler{read: read, seen: make(chan error, 100)}
		g, err := NewControllerManagedBy(mgr).For(&Widget{}).Named("place-" + name).Build(r)
		testenv.Must(t, err)
		reconcilers[name], groups[name] = r, g
	}
	s.startManager(mgr)
	for _, shape := range []struct {
		namespace string
		def       *apiextensionsv1.CustomResourceDefinition
	}{
		{"default", newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)},
		{"", newWidgetCRD("widgetz", apiextensionsv1.ClusterScoped)},
	} {
		s.installCRD(shape.def)
		for _, g := range groups {
			s.waitForPhase(g, Running)
		}
		s.createWidgetIn(shape.namespace, "one")
		for name, r := range reconcilers {
			s.expectRead(r, name)
		}
		if got := groups["map"].server.Informers.InformerCount(); got != 1 {
			t.Errorf("groups have %d informers, want the one of the events", got)
		}
		s.uninstallCRD(shape.def)
		for _, g := range groups {
			s.waitForPhase(g, Dormant)
		}
		s.waitUntilGone(shape.def)
		key := client.ObjectKey{Namespace: shape.namespace, Name: "one"}
		for name, r := range reconcilers {
			for len(r.seen) > 0 {
				t.Logf("%s: the deletion was reconciled, too: %v", name, <-r.seen)
			}
			// NewNamespacedClient first determines the scope of the kind, without a context.
			err := r.late(key)
			if !errors.Is(err, ErrScopeClosed) && (name != "namespace" || !meta.IsNoMatchError(err)) {
				t.Errorf("%s, a read after the stop: got %v, want ErrScopeClosed", name, err)
			}
			if err := r.read(t.Context(), key, &Widget{}); !meta.IsNoMatchError(err) {
				t.Errorf("%s, a read outside of a group: got %v, want a NoKindMatchError", name, err)
			}
		}
		if got := groups["map"].server.Informers.InformerCount(); got != 0 {
			t.Errorf("after the stop and late reads there are %d informers, want none", got)
		}
	}
}

func (s *apiServer) expectRead(r *placeReconciler, name string) {
	s.t.Helper()
	select {
	case err := <-r.seen:
		if err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	case <-time.After(patience):
		s.t.Fatalf("%s: nothing is reconciled", name)
	}
}

// TestWritesEndWithTheGroup writes with clients and a recorder that were taken from the manager before the first start.
func TestWritesEndWithTheGroup(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	mgr := s.newManagerFor(s.cfg)
	c, status, recorder := mgr.GetClient(), mgr.GetClient().Status(), mgr.GetEventRecorder("writer")
	late, seen := make(chan context.Context, 100), make(chan error, 100)
	g, err := NewControllerManagedBy(mgr).For(&Widget{}).Named("writer").Build(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			w := &Widget{}
			if err := c.Get(ctx, req.NamespacedName, w); err != nil || w.Annotations["written"] != "" {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			recorder.Eventf(w, nil, corev1.EventTypeNormal, "Written", "Write", "the object has an annotation")
			w.Annotations = map[string]string{"written": "yes"}
			err := c.Update(ctx, w)
			late <- context.WithoutCancel(ctx)
			seen <- err
			return reconcile.Result{}, nil
		}))
	testenv.Must(t, err)
	s.startManager(mgr)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	for _, name := range []string{"first", "second"} {
		s.installCRD(def)
		s.createWidget(name)
		testenv.Must(t, <-seen)
		s.eventually("the event is recorded", func(ctx context.Context) (bool, error) { return s.hasEvent(ctx, "Written", name) })
		s.uninstallCRD(def)
		s.waitForPhase(g, Dormant)
		s.waitUntilGone(def)
		ctx, cm := <-late, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late-" + name}}
		for what, err := range map[string]error{
			"a write":           c.Create(ctx, cm.DeepCopy()),
			"a write of status": status.Update(ctx, cm.DeepCopy()),
		} {
			if !errors.Is(err, ErrScopeClosed) {
				t.Errorf("%s after the stop: got %v, want ErrScopeClosed", what, err)
			}
		}
		testenv.Must(t, c.Create(t.Context(), cm)) // The manager's own client can still write.
	}
}

func (s *apiServer) hasEvent(ctx context.Context, reason, name string) (bool, error) {
	var all eventsv1.EventList
	if err := s.newClient().List(ctx, &all); err != nil {
		return false, err
	}
	for _, e := range all.Items {
		if e.Reason == reason && e.Regarding.Name == name {
			return true, nil
		}
	}
	return false, nil
}

// silentTransport never receives a response to requests for ConfigMaps.
type silentTransport struct{ next http.RoundTripper }

func (t silentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/configmaps") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return t.next.RoundTrip(r)
}

// TestReadsEndWithTheirDeadline reads a kind whose informer cannot sync, inside and outside of a group.
func TestReadsEndWithTheirDeadline(t *testing.T) {
	s := startAPIServer(t)
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return silentTransport{next} })
	mgr := s.newManagerFor(cfg)
	read := readWith(mgr.GetClient())
	readSoon := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		return read(ctx, client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.ConfigMap{})
	}
	inside := make(chan error, 1)
	g := mustSetUp(t, mgr, ServedObject(&corev1.Namespace{}), func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			inside <- readSoon(ctx)
			<-ctx.Done()
			return nil
		}))
	}, Name("deadline"))
	s.startManager(mgr)
	s.waitForPhase(g, Running)
	for where, err := range map[string]error{"in a group": <-inside, "outside of groups": readSoon(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "sync") {
			t.Errorf("%s: got %v, want an error about the informer's sync", where, err)
		}
	}
}

// idleWebhookServer does not listen. The test calls its handlers.
type idleWebhookServer struct{ webhook.Server }

func (idleWebhookServer) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// widgetValidator admits a Widget unless there is a Widget named "taken".
type widgetValidator struct {
	admission.Validator[*Widget]
	client client.Client
}

func (v *widgetValidator) ValidateCreate(ctx context.Context, _ *Widget) (admission.Warnings, error) {
	err := v.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "taken"}, &Widget{})
	if err == nil {
		return nil, errors.New("taken exists")
	}
	return nil, client.IgnoreNotFound(err)
}

// TestWebhooksReadWithTheManagersClient calls a webhook from main.go, which does not depend on groups, in each state of
// the CRD.
func TestWebhooksReadWithTheManagersClient(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	mgr := s.newManagerFor(s.cfg, func(o *ctrl.Options) { o.WebhookServer = idleWebhookServer{webhook.NewServer(webhook.Options{})} })
	testenv.Must(t, ctrl.NewWebhookManagedBy(mgr, &Widget{}).WithValidator(&widgetValidator{client: mgr.GetClient()}).Complete())
	g, err := NewControllerManagedBy(mgr).For(&Widget{}).Named("validated").Build(reconcile.Func(nil))
	testenv.Must(t, err)
	s.startManager(mgr)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	s.waitForCondition(g, False, "")
	for range 2 {
		if got := s.admit(mgr); got.Allowed || !strings.Contains(got.Result.Message, "no matches for kind") {
			t.Errorf("the kind is absent: got %+v, want a refusal because of the kind", got)
		}
		s.installCRD(def)
		s.waitForPhase(g, Running)
		s.eventually("a Widget is admitted", func(context.Context) (bool, error) { return s.admit(mgr).Allowed, nil })
		s.createWidget("taken")
		s.eventually("a Widget is refused", func(context.Context) (bool, error) {
			got := s.admit(mgr)
			return !got.Allowed && strings.Contains(got.Result.Message, "taken exists"), nil
		})
		s.uninstallCRD(def)
		s.waitForPhase(g, Dormant)
		s.waitUntilGone(def)
	}
}

// admit calls the webhook in the same way as the API server.
func (s *apiServer) admit(mgr manager.Manager) *admissionv1.AdmissionResponse {
	s.t.Helper()
	w := &Widget{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}
	raw, err := json.Marshal(w)
	testenv.Must(s.t, err)
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}},
	})
	testenv.Must(s.t, err)
	request := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/validate-example-com-v1-widget", bytes.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	mgr.GetWebhookServer().WebhookMux().ServeHTTP(answer, request)
	var got admissionv1.AdmissionReview
	testenv.Must(s.t, json.Unmarshal(answer.Body.Bytes(), &got))
	return got.Response
}
