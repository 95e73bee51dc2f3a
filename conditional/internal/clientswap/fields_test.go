// SPDX-License-Identifier: Apache-2.0

package clientswap

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func newManager(t *testing.T) manager.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

type readers struct{ API, Cached client.Reader }

type allParts struct {
	client.Client
	readers
	Manager manager.Manager
	HTTP    *http.Client
	Own     client.Client
	None    cache.Cache
	note    string
}

func TestBindReplacesWhatTheManagerGave(t *testing.T) {
	outer, first, second := newManager(t), newManager(t), newManager(t)
	own := newManager(t).GetClient()
	r := &allParts{
		Client: outer.GetClient(), readers: readers{outer.GetAPIReader(), outer.GetClient()},
		Manager: outer, HTTP: outer.GetHTTPClient(), Own: own, note: "mine",
	}
	fields, err := FindFields(r, outer)
	if err != nil {
		t.Fatal(err)
	}
	for _, mgr := range []manager.Manager{first, second} {
		if err := fields.BindTo(mgr); err != nil {
			t.Fatal(err)
		}
		for what, same := range map[string]bool{
			"the embedded client": r.Client == mgr.GetClient(),
			"the API reader":      r.API == mgr.GetAPIReader(),
			"the cached reader":   r.Cached == client.Reader(mgr.GetClient()),
			"the manager":         r.Manager == mgr,
			"the HTTP client":     r.HTTP == mgr.GetHTTPClient(),
			"somebody's client":   r.Own == own,
			"no cache":            r.None == nil,
			"something else":      r.note == "mine",
		} {
			if !same {
				t.Errorf("%s is not what it should be", what)
			}
		}
	}
}

type unexportedClient struct{ client client.Client }

type richInterface interface {
	client.Client
	More()
}

type richClient struct{ client.Client }

func (*richClient) More() {}

type richManager struct {
	manager.Manager
	client *richClient
}

func (m *richManager) GetClient() client.Client { return m.client }

func TestWhatCannotBeReplacedIsAnError(t *testing.T) {
	mgr := newManager(t)
	for name, r := range map[string]any{
		"an unexported field":          &unexportedClient{client: mgr.GetClient()},
		"a reconciler without pointer": readers{API: mgr.GetAPIReader()},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := FindFields(r, mgr); err == nil || !strings.Contains(err.Error(), "conditional.Setup") {
				t.Errorf("got %v, want the way out", err)
			}
		})
	}
	special := &richManager{Manager: mgr, client: &richClient{}}
	fields, err := FindFields(&struct{ Rich richInterface }{special.client}, special)
	if err != nil {
		t.Fatal(err)
	}
	if err := fields.BindTo(mgr); err == nil || !strings.Contains(err.Error(), "field Rich") {
		t.Errorf("got %v, want the field that cannot take the scope's client", err)
	}
}

func TestNothingToReplace(t *testing.T) {
	mgr := newManager(t)
	for name, r := range map[string]any{
		"a function":        func() {},
		"a nil pointer":     (*allParts)(nil),
		"another's clients": &unexportedClient{client: newManager(t).GetClient()},
		"no struct":         new(3),
	} {
		t.Run(name, func(t *testing.T) {
			if fields, err := FindFields(r, mgr); len(fields) != 0 || err != nil {
				t.Errorf("got %v and %v, want nothing", fields, err)
			}
		})
	}
}
