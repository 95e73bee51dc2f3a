// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// outsideWebhooks refuses webhooks. A scope lives on the leader only, and ends, while a webhook's Service asks every
// replica at any time.
type outsideWebhooks struct {
	webhook.Server
	scope *Manager
}

// GetWebhookServer returns a server that takes no webhook. It leaves the outer manager's alone, which would be started.
func (m *Manager) GetWebhookServer() webhook.Server {
	return outsideWebhooks{webhook.NewServer(webhook.Options{WebhookMux: http.NewServeMux()}), m}
}

// GetConverterRegistry returns an empty registry: the outer one has no lock, and takes each kind only once.
func (m *Manager) GetConverterRegistry() conversion.Registry { return conversion.NewRegistry() }

// WebhookMux returns an empty mux, which the webhook builder asks before it registers.
func (outsideWebhooks) WebhookMux() *http.ServeMux { return http.NewServeMux() }

// Register has no error to return: in a setup function it panics with one, which fails the start; later it fails the group.
func (w outsideWebhooks) Register(path string, _ http.Handler) {
	err := fmt.Errorf("expected webhooks to be set up with the outer manager, found %s in a conditional group, which runs on the leader only: "+
		"call ctrl.NewWebhookManagedBy in main.go, see docs/conditional.md", path)
	w.scope.mu.Lock()
	inSetup := w.scope.runContext == nil && w.scope.lifetime.Err() == nil
	w.scope.mu.Unlock()
	if inSetup {
		panic(err)
	}
	w.scope.reportFailure(err)
}
