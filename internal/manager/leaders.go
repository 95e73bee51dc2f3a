// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/extra"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/leaderelection"
	"github.com/torpor-dev/torpor/internal/leaderelection/installationlock"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

// addElection adds the election of the parts, and the lock that makes the installation the active one of the cluster.
// It returns nil for a manager without leader election.
func addElection(mgr manager.Manager, o Options, parts map[string][]string) (*leadership, error) {
	if !o.LeaderElection {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of the host: %w", err)
	}
	namespace := cmp.Or(o.Namespace, defaultNamespace)
	parted := leaderelection.New(leaderelection.Options{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("torpor-election"),
		Namespace: namespace, Identity: cmp.Or(o.PodName, host) + "_" + string(uuid.NewUUID()), Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("election"),
		Scope: lease.Scope{Namespaces: o.WatchNamespaces, Deployment: lease.FindDeployment(o.PodName), Version: buildinfo.ReadVersion().Version},
	}, parts)
	installation := &installationlock.Lock{
		Reported: extra.Reported{Name: "Installation"}, Reader: mgr.GetAPIReader(), Client: mgr.GetClient(),
		Namespace: namespace, Leads: parted.Leads(), Clock: clock.RealClock{},
	}
	if err := mgr.Add(installation); err != nil {
		return nil, fmt.Errorf("add the lock of the installation: %w", err)
	}
	if err := errors.Join(mgr.AddReadyzCheck("installation", installation.CheckLock), mgr.AddReadyzCheck("scope", parted.CheckScopes)); err != nil {
		return nil, fmt.Errorf("add readiness checks of the installation: %w", err)
	}
	if err := metrics.Registry.Register(leaderelection.NewMetrics(parted, installation.IsHeld)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return &leadership{parts: parted, installation: installation}, nil
}

// leadership contains the conditions under which this replica may act. Nil means that it may always act.
type leadership struct {
	parts        *leaderelection.Election
	installation *installationlock.Lock
}

// conditionsOf returns the conditions under which the controllers of a part may run.
func (l *leadership) conditionsOf(part string) []conditional.Condition {
	if l == nil {
		return nil
	}
	return []conditional.Condition{l.installation, l.parts.Part(part)}
}

// run runs the manager until it ends, or until this replica loses a Lease.
func (l *leadership) run(ctx context.Context, start func(context.Context) error) error {
	if l == nil {
		return start(ctx)
	}
	return l.parts.Run(ctx, start)
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
