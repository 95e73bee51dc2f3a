// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

func addWebhookFlags(f *pflag.FlagSet, o *manager.WebhookOptions) {
	f.StringVar(&o.Address, "webhook-address", "0", `host:port of the admission of apps, and of who stops something where no policy notes that; "0" for none`)
	f.StringVar(&o.CertFolder, "webhook-cert-dir", "",
		"folder with tls.crt and tls.key of the admission, read again when they change; then no Secret and no caBundle is touched. Empty makes a certificate")
	f.BoolVar(&o.LeavesBundles, "webhook-leave-ca-bundle", false, "let somebody else, such as cert-manager's injector, write the caBundle of the webhook configurations")
}
