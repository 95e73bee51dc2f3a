// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testAggregatedAPI registers an API server that runs in this process. The kube-apiserver reaches it through a Service
// of type ExternalName, with the port of the APIService.
func testAggregatedAPI(t *testing.T, c *testCluster) {
	gvk := kindIn("aggregated.example.com", "Flunder")
	v := c.view(t, c.cfg)
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}, APIServices: true})
	f.expect("absence", is(Absent), Served)

	backend := startBackend(t, gvk, "localhost:0")
	address, ok := backend.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the backend listens at %s", backend.Listener.Addr())
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "aggregated"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	registration := apiService(gvk, service.Name, address.Port)
	for _, obj := range []client.Object{service, registration} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	served := f.expect("service", is(Served))
	if served.Plural != "flunders" || served.UID != "" {
		t.Errorf("verdict %+v, want flunders without a CRD", served)
	}

	backend.CloseClientConnections()
	backend.Close()
	c.poke(t, registration) // The server itself looks at its backends every half minute.
	lost := f.expect("doubt", is(Unclear), Absent)
	t.Logf("unavailable: %s", lost.Message)
	v.quietUnless(f, Absent)

	startBackend(t, gvk, address.String())
	again := f.expect("service again", is(Served), Absent)
	if again.Identity != served.Identity {
		t.Errorf("identity %s became %s", served.Identity, again.Identity)
	}
	if err := c.Delete(t.Context(), registration); err != nil {
		t.Fatal(err)
	}
	f.expect("the end", is(Absent))
}

func apiService(gvk schema.GroupVersionKind, service string, port int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": gvk.Version + "." + gvk.Group},
		"spec": map[string]any{
			"group": gvk.Group, "version": gvk.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": metav1.NamespaceDefault, "name": service, "port": int64(port)},
		},
	}}
}

// poke changes an object without meaning.
func (c *testCluster) poke(t *testing.T, obj client.Object) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"poked":%q}}}`, t.Name()))
	if err := c.Patch(t.Context(), obj, patch); err != nil {
		t.Fatal(err)
	}
}

// startBackend serves discovery, list and watch of one kind, with TLS, until the test ends.
func startBackend(t *testing.T, gvk schema.GroupVersionKind, address string) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/" + gvk.GroupVersion().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, answer(metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gvk.GroupVersion().String(),
		APIResources: []metav1.APIResource{{Name: "flunders", SingularName: "flunder", Kind: gvk.Kind, Namespaced: true, Verbs: []string{"list", "watch"}}},
	}))
	list := answer(map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{},
	})
	mux.HandleFunc("GET "+path+"/flunders", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "true" {
			list(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}, EnableHTTP2: true}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func answer(what any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(what) // Whoever asked may be gone.
	}
}

// quietUnless looks on for as many looks as would be believed, if they were misses.
func (v *detectorLog) quietUnless(f *verdictFeed, bad Presence) {
	v.t.Helper()
	before := v.ProbeCounts()["unreadable"]
	eventually(v.t, "the outage was seen several times", func(context.Context) bool {
		select {
		case got := <-f.verdicts:
			if got.Presence == bad {
				v.t.Fatalf("got %+v in an outage", got)
			}
		default:
		}
		return v.ProbeCounts()["unreadable"] >= before+missesNeeded+2
	})
}
