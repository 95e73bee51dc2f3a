// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/route"
	routecontroller "github.com/torpor-dev/torpor/internal/cf/route/controller"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newEnv)
)

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

type env struct {
	*testenv.Environment
	domain     corev1.ObjectReference
	domainName string
}

// newEnv serves the Gateway API. Its CRDs validate the HTTPRoutes that the controller writes.
func newEnv(t testing.TB) *env {
	t.Helper()
	e := &env{Environment: testenv.Start(t)}
	e.InstallCRDs(t, testenv.FindHTTPRouteCRD(t))
	testenv.ExpectNoError(t, gatewayv1.Install(e.Client.Scheme()))
	testenv.StartManager(t, e.Environment, func(mgr manager.Manager) error {
		return routecontroller.Controller{Clock: clock.RealClock{}, Publisher: route.Publisher{GatewayNamespace: "infra", Gateway: "apps"}}.SetupWithManager(mgr)
	})
	return e
}

// getShared returns the shared environment with a separate domain for this test, so tests may use the same hosts.
func getShared(t *testing.T) *env {
	t.Helper()
	e := *shared.Get(t)
	namespace := e.CreateNamespace(t)
	domain := &korifiv1alpha1.CFDomain{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "apps"},
		Spec:       korifiv1alpha1.CFDomainSpec{Name: namespace + ".example.com"},
	}
	e.ExpectCreated(t, domain)
	e.domain, e.domainName = corev1.ObjectReference{Namespace: domain.Namespace, Name: domain.Name}, domain.Spec.Name
	return &e
}

func (e *env) createRoute(t *testing.T, namespace, host string, apps ...string) *korifiv1alpha1.CFRoute {
	t.Helper()
	made := &korifiv1alpha1.CFRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "route-" + host}, Spec: korifiv1alpha1.CFRouteSpec{Host: host, DomainRef: e.domain}}
	for _, app := range apps {
		made.Spec.Destinations = append(made.Spec.Destinations, korifiv1alpha1.RouteDestination{
			GUID: host + "-" + app, AppRef: corev1.LocalObjectReference{Name: app}, ProcessType: korifiv1alpha1.WebProcess, Protocol: korifiv1alpha1.HTTP1DestinationProtocol,
		})
	}
	e.ExpectCreated(t, made)
	return made
}

func (e *env) createApp(t *testing.T, namespace, name string) {
	t.Helper()
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: namespace, Name: name})
	app.Spec.DesiredState = korifiv1alpha1.StartedState
	e.ExpectCreated(t, app, &korifiv1alpha1.CFProcess{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-web"},
		Spec:       korifiv1alpha1.CFProcessSpec{AppRef: korifiv1alpha1.Reference{Name: name}, ProcessType: korifiv1alpha1.WebProcess, DesiredInstances: new(int32(2)), MemoryMB: 16, DiskQuotaMB: 16},
	})
}

func (e *env) expectReason(t *testing.T, obj *korifiv1alpha1.CFRoute, reason string) {
	t.Helper()
	testenv.Eventually(t, obj.Name+" is "+reason, func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(obj.Status.Conditions, korifiv1alpha1.ReadyCondition); c == nil || c.Reason != reason || c.ObservedGeneration != obj.Generation {
			return fmt.Errorf("expected %s, found %+v", reason, obj.Status.Conditions)
		}
		return nil
	})
}

func TestAddressIsPublishedWithItsDestinations(t *testing.T) {
	e := getShared(t)
	namespace := e.CreateNamespace(t)
	e.createApp(t, namespace, "blue")
	obj := e.createRoute(t, namespace, "shop", "blue", "green")
	e.expectReason(t, obj, korifiv1alpha1.AddressPublishedReason)
	if obj.Status.URI != "shop."+e.domainName || obj.Status.CurrentStatus != korifiv1alpha1.ValidRoute || len(obj.Status.Destinations) != 1 {
		t.Errorf("expected a valid route to one app, found %+v", obj.Status)
	}
	e.createApp(t, namespace, "green")
	published := &gatewayv1.HTTPRoute{}
	testenv.Eventually(t, "both apps get requests", func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), published); err != nil {
			return err
		}
		if refs := published.Spec.Rules[0].BackendRefs; len(refs) != 2 || *refs[1].Weight != 2 {
			return fmt.Errorf("expected two destinations, found %+v", refs)
		}
		return nil
	})
	var service corev1.Service
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "s-shop-green"}, &service))
	if service.Spec.Selector[korifiv1alpha1.AppGUIDLabel] != "green" || service.Spec.Ports[0].TargetPort.StrVal != "http" {
		t.Errorf("expected the instances of the app at its own port, found %+v", service.Spec)
	}

	published.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: published.Spec.ParentRefs[0], ControllerName: "example.com/gateway"}}
	for _, kind := range []string{"Accepted", "ResolvedRefs"} {
		published.Status.Parents[0].Conditions = append(published.Status.Parents[0].Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: kind, ObservedGeneration: published.Generation, LastTransitionTime: published.CreationTimestamp,
		})
	}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), published))
	e.expectReason(t, obj, korifiv1alpha1.AddressServedReason)

	// An unmapped app receives no requests, and the controller reverts changes by other clients.
	testenv.ExpectPatched(t, e.Environment, obj, func(r *korifiv1alpha1.CFRoute) {
		r.Spec.Destinations = r.Spec.Destinations[1:]
	})
	testenv.Eventually(t, "one Service is left", func() error {
		var services corev1.ServiceList
		if err := e.Client.List(t.Context(), &services, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(services.Items) != 1 || services.Items[0].Name != "s-shop-green" {
			return fmt.Errorf("expected s-shop-green, found %d Services", len(services.Items))
		}
		return nil
	})
}

func TestOldestRouteHasTheAddress(t *testing.T) {
	e := getShared(t)
	mine, theirs := e.CreateNamespace(t), e.CreateNamespace(t)
	e.createApp(t, mine, "app")
	e.createApp(t, theirs, "app")
	first := e.createRoute(t, mine, "taken", "app")
	testenv.Eventually(t, "the second in which the first route was created is over", func() error {
		if time.Since(first.CreationTimestamp.Time) < time.Second {
			return errors.New("it is not over")
		}
		return nil
	})
	second := e.createRoute(t, theirs, "taken", "app")
	e.expectReason(t, second, korifiv1alpha1.AddressTakenReason)
	e.expectReason(t, first, korifiv1alpha1.AddressPublishedReason)
	e.expectNoHTTPRoute(t, second)
	// As in Cloud Controller, all requests to a host belong to the space that owns the host. Another space's route with
	// a path on the same host receives no requests.
	below := second.DeepCopy()
	below.ObjectMeta, below.Spec.Path = metav1.ObjectMeta{Namespace: theirs, Name: "below"}, "/login"
	below.Spec.Destinations[0].GUID = "below-app"
	e.ExpectCreated(t, below)
	e.expectReason(t, below, korifiv1alpha1.AddressTakenReason)
	e.expectNoHTTPRoute(t, below)
	own := below.DeepCopy()
	own.ObjectMeta = metav1.ObjectMeta{Namespace: mine, Name: "below"}
	e.ExpectCreated(t, own)
	e.expectReason(t, own, korifiv1alpha1.AddressPublishedReason)
	for _, obj := range []*korifiv1alpha1.CFRoute{first, own} {
		testenv.ExpectNoError(t, e.Client.Delete(t.Context(), obj))
	}
	e.expectReason(t, second, korifiv1alpha1.AddressPublishedReason)
	e.expectReason(t, below, korifiv1alpha1.AddressPublishedReason)
}

// Timestamps have whole seconds. A route that is created later in the same second may come first by name. In that case,
// the other route is enqueued.
func TestRoutesCreatedInTheSameSecondAreEnqueued(t *testing.T) {
	e := getShared(t)
	namespaces := []string{e.CreateNamespace(t), e.CreateNamespace(t)}
	slices.Sort(namespaces)
	for _, n := range namespaces {
		e.createApp(t, n, "app")
	}
	for attempt := range 50 {
		host := fmt.Sprintf("second-%d", attempt)
		testenv.Eventually(t, "most of a second is left", func() error {
			return testenv.ErrorIf(time.Now().Nanosecond() > int(200*time.Millisecond), "it is not")
		})
		loser := e.createRoute(t, namespaces[1], host, "app")
		e.expectReason(t, loser, korifiv1alpha1.AddressPublishedReason)
		winner := e.createRoute(t, namespaces[0], host, "app")
		if !winner.CreationTimestamp.Equal(&loser.CreationTimestamp) {
			continue
		}
		e.expectReason(t, winner, korifiv1alpha1.AddressPublishedReason)
		e.expectReason(t, loser, korifiv1alpha1.AddressTakenReason)
		e.expectNoHTTPRoute(t, loser)
		return
	}
	t.Fatal("expected two routes of one second in 50 attempts, found none; is the machine that slow?")
}

func TestTheNextDomainOfANameIsServedWhenTheFirstGoes(t *testing.T) {
	e := getShared(t)
	namespace := e.CreateNamespace(t)
	e.createApp(t, namespace, "app")
	var domains []*korifiv1alpha1.CFDomain
	for _, name := range []string{"first", "second"} {
		d := &korifiv1alpha1.CFDomain{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: korifiv1alpha1.CFDomainSpec{Name: "same." + e.domainName}}
		e.ExpectCreated(t, d)
		domains = append(domains, d)
	}
	other := *e
	other.domain = corev1.ObjectReference{Namespace: namespace, Name: "second"}
	obj := other.createRoute(t, namespace, "www", "app")
	e.expectReason(t, obj, korifiv1alpha1.DomainMissingReason)
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), domains[0]))
	e.expectReason(t, obj, korifiv1alpha1.AddressPublishedReason)
}

// No controller reconciles Slumbers in this test, so nothing changes an app when its stop expires.
func TestAppGetsRequestsAgainWhenASlumbersStopEnds(t *testing.T) {
	e := getShared(t)
	for name, row := range map[string]struct {
		lasts time.Duration
		// end ends the stop. It is nil for a stop that expires.
		end func(*korifiv1alpha1.CFApp)
	}{
		"stop that expires": {lasts: 4 * time.Second},
		"stop of an app that a user exempts from Slumbers": {lasts: time.Hour, end: func(app *korifiv1alpha1.CFApp) {
			app.Annotations[torporv1alpha1.SkipUntilAnnotation] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := e.CreateNamespace(t)
			e.createApp(t, namespace, "blue")
			e.createApp(t, namespace, "green")
			blue := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"}}
			testenv.ExpectPatched(t, e.Environment, blue, func(app *korifiv1alpha1.CFApp) {
				key, value, err := stoprecord.ScheduledAnnotation(torporv1alpha1.ScheduledStop{
					Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(time.Now()), Requested: true}},
					ExpiresAt: new(metav1.NewTime(time.Now().Add(row.lasts))),
				}, "nights")
				testenv.ExpectNoError(t, err)
				app.Annotations = map[string]string{key: value}
			})
			obj := e.createRoute(t, namespace, namespace, "blue", "green")
			e.expectWeights(t, obj, 0, 2)
			if row.end != nil {
				testenv.ExpectPatched(t, e.Environment, blue, row.end)
			}
			e.expectWeights(t, obj, 2, 2)
		})
	}
}

// expectWeights waits until the HTTPRoute of a route has these weights.
func (e *env) expectWeights(t *testing.T, obj *korifiv1alpha1.CFRoute, want ...int32) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("the weights of %s are %v", obj.Name, want), func() error {
		published := &gatewayv1.HTTPRoute{}
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), published); err != nil {
			return err
		}
		var found []int32
		for _, ref := range published.Spec.Rules[0].BackendRefs {
			found = append(found, *ref.Weight)
		}
		return testenv.ErrorIf(!slices.Equal(found, want), "found %v", found)
	})
}

func (e *env) expectNoHTTPRoute(t *testing.T, obj *korifiv1alpha1.CFRoute) {
	t.Helper()
	testenv.Eventually(t, "there is no HTTPRoute of "+obj.Name, func() error {
		err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), &gatewayv1.HTTPRoute{})
		if err == nil {
			return errors.New("found one")
		}
		return client.IgnoreNotFound(err)
	})
}
