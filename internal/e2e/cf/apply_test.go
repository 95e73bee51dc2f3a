// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const pageSize = 1 << 12

func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// apply makes the objects of a file.
func (w *world) apply(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for in := yaml.NewYAMLOrJSONDecoder(file, pageSize); ; {
		var u unstructured.Unstructured
		err := in.Decode(&u)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		w.create(t, &u)
	}
}

// installWebhooks applies config/webhook with an address in place of its Service; the manager adds its authority.
func (w *world) installWebhooks(t *testing.T, url string) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "..", "config", "webhook", "manifests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	in := yaml.NewYAMLOrJSONDecoder(file, pageSize)
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := errors.Join(in.Decode(&mutating), in.Decode(&validating)); err != nil {
		t.Fatal(err)
	}
	to := func(c *admissionregistrationv1.WebhookClientConfig) { c.URL, c.Service = new(url+*c.Service.Path), nil }
	to(&mutating.Webhooks[0].ClientConfig)
	to(&validating.Webhooks[0].ClientConfig)
	w.create(t, &mutating)
	w.create(t, &validating)
}
