// SPDX-License-Identifier: Apache-2.0

// Package installationlock allows only one Torpor installation to act on a cluster. The Leases of package leaderelection
// are in the namespace of the installation, so a second installation in another namespace has its own leaders. The Lease
// of this package exists only once per cluster.
package installationlock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/extra"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

const (
	leaseDuration = time.Minute
	renewInterval = 30 * time.Second
	retryInterval = 2 * time.Second
	callTimeout   = 10 * time.Second
)

// Reasons of the condition while the installation is not active.
const (
	otherReason = "AnotherInstallation"
	lostReason  = "LeaseLost"
)

// errTaken means that another installation is active.
var errTaken = errors.New("another installation of Torpor is active in this cluster")

// Lock makes an installation the active one of its cluster. It is a conditional.Condition that is True while the
// installation holds the Lease.
type Lock struct {
	extra.Reported

	// Reader reads from the API server, and Client writes to it.
	Reader client.Reader
	Client client.Client
	// Namespace is the namespace of the installation.
	Namespace string
	// Leads is closed when this replica leads a part. The replicas that lead hold the Lock for all replicas.
	Leads <-chan struct{}
	Clock clock.Clock

	// written is the Lease as this replica last wrote it; nil if the Lease has to be read first.
	written *coordinationv1.Lease

	mu      sync.Mutex
	failure error
	renewed time.Time
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,resourceNames=torpor,verbs=get;update

// Start acquires and renews the Lease from the time at which this replica leads a part, until ctx is cancelled. It does
// not release the Lease at the end, because other replicas of this installation continue to renew it.
func (c *Lock) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.Leads:
	}
	for {
		err := c.renew(ctx)
		wait := renewInterval
		if ctx.Err() == nil {
			c.note(ctx, err)
		}
		if err != nil {
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(wait):
		}
	}
}

// CheckLock is a readiness check. It fails if another installation is active, or if this replica could not acquire the
// Lease or renew it in time. A replica that leads no part is ready.
func (c *Lock) CheckLock(*http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// IsHeld reports whether this installation is active, and this replica leads a part of it.
func (c *Lock) IsHeld() bool { return c.Status().State == conditional.True }

// note records the result of an attempt to renew the Lease. A failed request does not change the status True until the
// Lease has expired.
func (c *Lock) note(ctx context.Context, err error) {
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.Status()
	after := before
	switch {
	case err == nil:
		c.renewed = now
		after = conditional.Status{State: conditional.True, Reason: "Held"}
	case errors.Is(err, errTaken):
		after = conditional.Status{State: conditional.False, Reason: otherReason, Message: err.Error()}
	case before.State == conditional.True && now.Sub(c.renewed) < leaseDuration:
		err = nil
	default:
		after = conditional.Status{State: conditional.False, Reason: lostReason, Message: err.Error()}
	}
	c.failure = err
	if after != before && c.Report(after) {
		log.FromContext(ctx).Info("This installation has become active or inactive",
			"acts", after.State == conditional.True, "reason", after.Reason, "why", after.Message)
	}
}

// renew acquires or renews the Lease. A Lease that no other manager has written since the last renewal is renewed
// without a read.
func (c *Lock) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if c.written != nil {
		if err := c.write(ctx, c.written); !k8serrors.IsConflict(err) && !k8serrors.IsNotFound(err) {
			return err
		}
	}
	held := newLease()
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(held), held)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	if acting := lease.Read(held, c.Clock.Now()); acting.Installation != "" && acting.Installation != c.Namespace {
		return fmt.Errorf("%w: the installation in namespace %s holds the Lease %s/%s; the installation in namespace %s waits until that installation is uninstalled",
			errTaken, acting.Installation, lease.Namespace, lease.Name, c.Namespace)
	}
	return c.write(ctx, held)
}

// write writes the Lease for this installation. A Lease without a resource version is created.
func (c *Lock) write(ctx context.Context, held *coordinationv1.Lease) error {
	c.written = nil
	lease.Take(held, c.Namespace, leaseDuration, c.Clock.Now())
	var err error
	if held.ResourceVersion == "" {
		err = c.Client.Create(ctx, held)
	} else {
		err = c.Client.Update(ctx, held)
	}
	if err != nil {
		return fmt.Errorf("write the Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	c.written = held
	return nil
}

func newLease() *coordinationv1.Lease {
	held := &coordinationv1.Lease{}
	held.Namespace, held.Name = lease.Namespace, lease.Name
	return held
}
