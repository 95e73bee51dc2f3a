// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestEnvironmentHasOnlyTheServicesOfTheNextRevision adds bindings that give an app no credentials, for example those
// that Korifi has left. The Secret of the managed service is missing, so reading it would fail the request.
func TestEnvironmentHasOnlyTheServicesOfTheNextRevision(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	alice := e.callerNamed(t, "alice")
	service := func(name string) string {
		return alice.expect(t, http.StatusCreated, "POST /v3/service_instances",
			`{"type":"user-provided","name":"`+name+`","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`).field(t, "guid")
	}
	bind := func(to, kind string, finalizers ...string) *korifiv1alpha1.CFServiceBinding {
		return &korifiv1alpha1.CFServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "to-" + to, Finalizers: finalizers}, Spec: korifiv1alpha1.CFServiceBindingSpec{
			Service: corev1.ObjectReference{Name: to}, AppRef: corev1.LocalObjectReference{Name: app}, Type: kind,
		}}
	}
	managed := &korifiv1alpha1.CFServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "managed"}, Spec: korifiv1alpha1.CFServiceInstanceSpec{DisplayName: "managed", SecretName: "missing", Type: "managed"},
	}
	deleted := bind(service("deleted"), "app", "example.com/broker")
	bindings := []*korifiv1alpha1.CFServiceBinding{bind(service("bound"), "app"), bind(service("keyed"), "key"), bind(managed.Name, "app"), deleted}
	e.ExpectCreated(t, managed, bindings[0], bindings[1], bindings[2], bindings[3])
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), deleted))
	for _, b := range bindings {
		alice.awaitStatus(t, http.StatusOK, "/v3/service_credential_bindings/"+b.Name)
	}
	alice.awaitStatus(t, http.StatusOK, "/v3/service_instances/managed")
	testenv.Eventually(t, "the environment has only the service with a binding that lasts", func() error {
		r := alice.get(t, "/v3/apps/"+app+"/env")
		isRight := r.status == http.StatusOK && r.field(t, "system_env_json.VCAP_SERVICES.user-provided#") == "1" &&
			r.field(t, "system_env_json.VCAP_SERVICES.user-provided.0.name") == "bound"
		return testenv.ErrorIf(!isRight, "found %d %s", r.status, r.body)
	})
}

// TestManifestOmitsRoutesOfADeletedDomain deletes a domain as kubectl does, which leaves its routes. A manifest with
// such a route could not be applied again.
func TestManifestOmitsRoutesOfADeletedDomain(t *testing.T) {
	e := shared.Get(t)
	space := e.createSpace(t)
	alice := e.callerNamed(t, "alice")
	domain := &korifiv1alpha1.CFDomain{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "of-" + space}, Spec: korifiv1alpha1.CFDomainSpec{Name: space + ".example.org"}}
	e.ExpectCreated(t, domain)
	alice.awaitStatus(t, http.StatusOK, "/v3/domains/"+domain.Name)
	apply, kept := "POST /v3/spaces/"+space+"/actions/apply_manifest", space+".example.com"
	alice.expect(t, http.StatusAccepted, apply,
		"applications: [{name: shop, docker: {image: 'shop:1'}, routes: [{route: "+kept+"}, {route: shop."+domain.Spec.Name+"}]}]")
	app := alice.get(t, "/v3/apps?space_guids="+space).field(t, "resources.0.guid")
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), domain))
	alice.awaitStatus(t, http.StatusNotFound, "/v3/domains/"+domain.Name)
	alice.expect(t, http.StatusAccepted, apply, alice.get(t, "/v3/apps/"+app+"/manifest").body)
}
