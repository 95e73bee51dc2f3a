// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/coexist/claim"
	"github.com/torpor-dev/torpor/internal/coexist/lease"
)

// addClaim returns a condition that is True while this installation is the active one of the cluster; none for a
// manager without leader election, as on a laptop. enabled are the groups of controllers that run, which the Lease
// records.
func addClaim(mgr manager.Manager, o Options, enabled []string) ([]conditional.Condition, error) {
	if !o.LeaderElection {
		return nil, nil
	}
	installation := &claim.Claim{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: cmp.Or(o.Namespace, defaultNamespace), Clock: clock.RealClock{},
		Scope: lease.Scope{
			Controllers: enabled, Namespaces: o.WatchNamespaces, Deployment: lease.FindDeployment(o.PodName), Version: buildinfo.ReadVersion().Version,
		},
	}
	standby := &claim.Standby{Claim: installation}
	if err := errors.Join(mgr.Add(installation), mgr.Add(standby)); err != nil {
		return nil, fmt.Errorf("add the claim to act: %w", err)
	}
	if err := errors.Join(mgr.AddReadyzCheck("installation", installation.CheckClaim), mgr.AddReadyzCheck("scope", standby.CheckScope)); err != nil {
		return nil, fmt.Errorf("add readiness checks of the installation: %w", err)
	}
	if err := metrics.Registry.Register(claim.NewMetric(installation)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return []conditional.Condition{installation}, nil
}

// NewClient returns a client without a cache whose scheme has all kinds of Torpor.
func NewClient(cfg *rest.Config) (client.Client, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = noLimit
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}
