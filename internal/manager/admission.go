// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

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
	"github.com/torpor-dev/torpor/internal/coexist/claim"
	switchwebhook "github.com/torpor-dev/torpor/internal/switches/admission/webhook"
)

// webhookService is the name of the Service in config/webhook.
const webhookService = "torpor-webhook"

// WebhookOptions configure the admission webhooks: for apps, and for the requesters of stops.
type WebhookOptions struct {
	// Address is host:port; "0" disables the webhooks.
	Address string
	// CertFolder contains tls.crt and tls.key. If it is empty, the manager issues a certificate, and stores the
	// authority of all replicas in a Secret.
	CertFolder string
	// LeavesBundles leaves the caBundle of the webhook configurations to another controller.
	LeavesBundles bool
}

func (o WebhookOptions) isServed() bool { return o.Address != "" && o.Address != "0" }

// addAdmission serves the admission webhooks. They are not a conditional group, because groups run on the leader only,
// and the webhook's Service routes to every replica. The server needs no kind to be installed, and gets no request
// before config/webhook or config/record/webhook is applied. The returned context is for the manager: it ends once the
// API server no longer calls this replica.
func addAdmission(ctx context.Context, mgr manager.Manager, o Options) (context.Context, error) {
	if !o.Webhook.isServed() {
		return ctx, nil
	}
	ctx, isServing := extendContext(ctx, clock.RealClock{})
	rotator, server, err := buildAdmission(mgr, o)
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
func buildAdmission(mgr manager.Manager, o Options) (*certrotation.Rotator, webhook.Server, error) {
	host, text, err := net.SplitHostPort(o.Webhook.Address)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-address: expected host:port, found %q: %w", o.Webhook.Address, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil, fmt.Errorf("--webhook-address: expected a number after the colon, found %q: %w", text, err)
	}
	namespace := cmp.Or(o.Namespace, defaultNamespace)
	rotator := &certrotation.Rotator{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Service: webhookService,
		Hosts: []string{webhookService + "." + namespace + ".svc", cmp.Or(host, "localhost")},
		Kind:  korifiv1alpha1.CFAppKind(), OptionalConfigurations: claim.ListRecordNames(), LeavesBundles: o.Webhook.LeavesBundles, Clock: clock.RealClock{}, Metrics: certrotation.NewMetrics(),
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.GetCertificate, c.MinVersion = rotator.GetCertificate, tls.VersionTLS13 },
	}})
	admission.Webhooks{Clock: clock.RealClock{}, Manager: admission.AskIdentity(mgr.GetClient())}.Register(server)
	switchwebhook.Register(server)
	runnables := []manager.Runnable{server, rotator}
	if folder := o.Webhook.CertFolder; folder != "" {
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
