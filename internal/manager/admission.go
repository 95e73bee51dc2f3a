// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	admission "github.com/torpor-dev/torpor/internal/cf/admission"
	"github.com/torpor-dev/torpor/internal/cf/admission/certrotation"
)

// webhookService is the Service of config/webhook.
const webhookService = "torpor-webhook"

// addAdmission serves the admission of apps. It is no conditional group: groups run on the leader only, and the webhook's
// Service leads to every replica. It needs no kind to be installed, and gets no request before config/webhook is.
func addAdmission(mgr manager.Manager, o Options) error {
	if o.WebhookAddress == "" || o.WebhookAddress == "0" {
		return nil
	}
	host, text, err := net.SplitHostPort(o.WebhookAddress)
	if err != nil {
		return fmt.Errorf("--webhook-address: expected host:port, found %q: %w", o.WebhookAddress, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("--webhook-address: expected a number after the colon, found %q: %w", text, err)
	}
	namespace := cmp.Or(o.Namespace, defaultNamespace)
	rotator := &certrotation.Rotator{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Clock: clock.RealClock{},
		Hosts: []string{webhookService + "." + namespace + ".svc", cmp.Or(host, "localhost")},
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){
		func(c *tls.Config) { c.GetCertificate, c.MinVersion = rotator.GetCertificate, tls.VersionTLS13 },
	}})
	admission.RegisterWebhooks(server, clock.RealClock{})
	for _, r := range []manager.Runnable{server, rotator} {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("add the admission of apps: %w", err)
		}
	}
	return nil
}
