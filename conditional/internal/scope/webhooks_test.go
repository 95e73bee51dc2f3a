// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

type idleDefaulter struct{}

func (idleDefaulter) Default(context.Context, *corev1.Pod) error { return nil }

// TestWebhooksBelongOutside uses a scope of a manager that was not asked for its webhook server, which would start it.
func TestWebhooksBelongOutside(t *testing.T) {
	r := newScopeEnv(t)
	m, err := New(r.outer, r.hub, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for what, setUp := range map[string]func(){
		"a handler":   func() { m.GetWebhookServer().Register("/hook", http.NotFoundHandler()) },
		"the builder": func() { _ = ctrl.NewWebhookManagedBy(m, &corev1.Pod{}).WithDefaulter(idleDefaulter{}).Complete() },
	} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "outer manager") {
					t.Errorf("%s: panicked with %v, want an error that says where webhooks belong", what, err)
				}
			}()
			setUp()
		}()
	}
	m.Close()
	m.GetWebhookServer().Register("/hook", http.NotFoundHandler()) // A panic would end the process.
	if err := <-m.failed; !strings.Contains(err.Error(), "/hook") {
		t.Errorf("a late registration failed with %v, want an error that names the path", err)
	}
}
