// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/admission"
	"github.com/torpor-dev/torpor/internal/cf/admission/certrotation"
	"github.com/torpor-dev/torpor/internal/leaderelection/installationlock"
	switchwebhook "github.com/torpor-dev/torpor/internal/switches/requester/webhook"
)

// webhookService is the name of the Service in config/webhook.
const webhookService = "torpor-webhook"

// addAdmission serves the admission webhooks. They are not a conditional group, because groups run only on the
// leader, and the webhook's Service routes to every replica. The server needs no kind to be installed, and receives no
// request before config/webhook or config/record/webhook is applied. The returned context is for the manager: it ends
// drainTime after ctx, because the API server may call this replica until then.
func addAdmission(ctx context.Context, mgr manager.Manager, c *webhookConfig) (context.Context, error) {
	if c == nil {
		return ctx, nil
	}
	ctx, isServing := extendContext(ctx, clock.RealClock{})
	rotator, server, err := buildAdmission(mgr, *c)
	if err != nil {
		return ctx, err
	}
	for name, check := range map[string]healthz.Checker{"webhook-server": server.StartedChecker(), "webhook-trust": rotator.CheckTrust, "webhook-serving": isServing} {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return ctx, fmt.Errorf("add the readiness check %s: %w", name, err)
		}
	}
	if err := metrics.Registry.Register(rotator.Metrics); err != nil {
		return ctx, fmt.Errorf("register metrics: %w", err)
	}
	return ctx, nil
}

// buildAdmission adds the webhook server and the rotation of its certificate.
func buildAdmission(mgr manager.Manager, c webhookConfig) (*certrotation.Rotator, webhook.Server, error) {
	rotator := &certrotation.Rotator{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: c.namespace, Service: webhookService,
		ServesApps: c.servesApps,
		Hosts:      []string{webhookService + "." + c.namespace + ".svc", cmp.Or(c.host, "localhost")},
		Kind:       korifiv1alpha1.CFAppKind(), OptionalConfigurations: installationlock.ListRecordNames(), LeavesBundles: c.leavesBundles, Clock: clock.RealClock{}, Metrics: certrotation.NewMetrics(),
	}
	server := webhook.NewServer(webhook.Options{Host: c.host, Port: c.port, TLSOpts: []func(*tls.Config){
		func(t *tls.Config) { t.GetCertificate, t.MinVersion = rotator.GetCertificate, tls.VersionTLS13 },
	}})
	admission.Webhooks{Clock: clock.RealClock{}, Manager: admission.AskIdentity(mgr.GetClient())}.Register(server)
	switchwebhook.Register(server)
	runnables := []manager.Runnable{server, rotator}
	if folder := c.certFolder; folder != "" {
		var err error
		if rotator.Files, err = certwatcher.New(filepath.Join(folder, corev1.TLSCertKey), filepath.Join(folder, corev1.TLSPrivateKeyKey)); err != nil {
			return nil, nil, fmt.Errorf("--webhook-cert-dir: expected %s and %s in %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, folder, err)
		}
		runnables = append(runnables, rotator.Files)
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return nil, nil, fmt.Errorf("add the admission: %w", err)
		}
	}
	return rotator, server, nil
}
