// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// otherCluster is as much of a cluster as a condition needs.
type otherCluster struct {
	cluster.Cluster
	cfg    *rest.Config
	client *http.Client
	scheme *runtime.Scheme
}

func (c otherCluster) GetCache() cache.Cache       { return nil }
func (c otherCluster) GetConfig() *rest.Config     { return c.cfg }
func (c otherCluster) GetHTTPClient() *http.Client { return c.client }
func (c otherCluster) GetScheme() *runtime.Scheme  { return c.scheme }

// sourcesCondition notes what it may observe with.
type sourcesCondition struct{ with *Sources }

func (sourcesCondition) String() string { return "asked" }

func (a sourcesCondition) Observe(_ context.Context, src Sources, report func(Status)) error {
	*a.with = src
	report(Status{State: True})
	return nil
}

func TestOnReplacesTheSources(t *testing.T) {
	there := otherCluster{cfg: &rest.Config{Host: "there"}, client: &http.Client{}, scheme: runtime.NewScheme()}
	var with Sources
	c := On(there, sourcesCondition{&with})
	if got := c.String(); got != "On(asked)" {
		t.Errorf("it is called %s", got)
	}
	here := Sources{Config: &rest.Config{Host: "here"}, HTTPClient: &http.Client{}, Scheme: runtime.NewScheme(), stopOnTerminating: true}
	var got Status
	if err := c.Observe(t.Context(), here, func(s Status) { got = s }); err != nil {
		t.Fatal(err)
	}
	if with.Config != there.cfg || with.HTTPClient != there.client || with.Scheme != there.scheme || !with.stopOnTerminating {
		t.Errorf("observed with %+v", with)
	}
	if got.State != True {
		t.Errorf("reported %+v", got)
	}
}

func TestOnFindsKindsInTheSchemeOfItsCluster(t *testing.T) {
	there := otherCluster{cfg: &rest.Config{}, client: &http.Client{}, scheme: runtime.NewScheme()}
	addWidgets(there.scheme)
	when, ok := On(there, ServedObject(&Widget{})).(validator)
	if !ok {
		t.Fatal("On does not validate")
	}
	if err := when.validate(Sources{Scheme: runtime.NewScheme()}); err != nil {
		t.Error(err)
	}
}
