// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

func addWebhookFlags(f *pflag.FlagSet, o *manager.WebhookOptions) {
	f.StringVar(&o.Address, "webhook-address", "0", `host:port of the admission webhook for apps, and for the requesters of stops where no admission policy records them; "0" for none`)
	f.StringVar(&o.CertFolder, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key of the webhook, read again when they change; with a folder, the manager writes no Secret and no caBundle; empty lets the manager create a certificate")
	f.BoolVar(&o.LeavesBundles, "webhook-leave-ca-bundle", false, "do not write the caBundle of the webhook configurations, because another controller, such as cert-manager's injector, writes it")
}
