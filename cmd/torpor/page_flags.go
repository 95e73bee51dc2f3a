// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

func addPageFlags(f *pflag.FlagSet, o *manager.PageOptions) {
	f.StringVar(&o.Address, "page-address", "0", `host:port of the web page, "0" for none; without --page-cert-dir it must be a loopback address such as 127.0.0.1:8088, for kubectl port-forward`)
	f.StringVar(&o.CertFolder, "page-cert-dir", "", "folder with tls.crt and tls.key of the page, read again when they change")
	f.StringVar(&o.PricesFolder, "page-prices-dir", "", "folder with the keys of the ConfigMap with prices, for the savings of the page (docs/page.md)")
}
