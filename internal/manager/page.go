// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/internal/page"
)

// addPage serves the page on every replica. The page has its own watches, with the permissions of the features,
// because the features run only on the leader.
func addPage(mgr manager.Manager, o Options) error {
	if o.Page.Address == "" || o.Page.Address == "0" {
		return nil
	}
	counted := page.NewMetrics()
	if err := metrics.Registry.Register(counted); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	server, err := page.New(page.Options{
		Address: o.Page.Address, CertFolder: o.Page.CertFolder, PricesFolder: o.Page.PricesFolder, Config: mgr.GetConfig(), Namespaces: o.WatchNamespaces,
		Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("page"), Metrics: counted,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add the page: %w", err)
	}
	return nil
}
