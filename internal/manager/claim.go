// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/internal/installation"
)

// addClaim returns what holds while this installation is the one that acts on the cluster. A manager without leader election, as
// on a laptop, claims nothing.
func addClaim(mgr manager.Manager, o Options) ([]conditional.Condition, error) {
	if !o.LeaderElection {
		return nil, nil
	}
	claim := &installation.Claim{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: cmp.Or(o.Namespace, defaultNamespace), Clock: clock.RealClock{}}
	if err := mgr.Add(claim); err != nil {
		return nil, fmt.Errorf("add the claim to act: %w", err)
	}
	if err := mgr.AddReadyzCheck("installation", claim.CheckClaim); err != nil {
		return nil, fmt.Errorf("add readiness check of the installation: %w", err)
	}
	if err := metrics.Registry.Register(installation.NewMetric(claim)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return []conditional.Condition{claim}, nil
}

// NewClient makes a client without a cache that knows every kind of Torpor.
func NewClient(cfg *rest.Config) (client.Client, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = noLimit
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}
