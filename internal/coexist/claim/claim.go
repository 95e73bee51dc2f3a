// SPDX-License-Identifier: Apache-2.0

// Package claim allows only one Torpor installation to act on a cluster. The Lease for leader election is in the
// namespace of the installation, so a second installation in another namespace has its own leader. The Lease of this
// package exists only once per cluster.
package claim

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
	"github.com/torpor-dev/torpor/internal/coexist/lease"
)

const (
	leaseDuration = time.Minute
	renewInterval = 15 * time.Second
	retryInterval = 2 * time.Second
	callTimeout   = 10 * time.Second
)

// Reasons of the condition while the installation is not active.
const (
	standbyReason = "Standby"
	otherReason   = "AnotherInstallation"
	lostReason    = "LeaseLost"
)

// errTaken means that another installation is active.
var errTaken = errors.New("another installation of Torpor is active in this cluster")

// Claim makes an installation the active one of its cluster. It is a conditional.Condition that is True while this
// replica holds the Lease.
type Claim struct {
	// Reader reads from the API server, and Client writes to it.
	Reader client.Reader
	Client client.Client
	// Namespace is the namespace of the installation.
	Namespace string
	// Scope describes what this manager handles; the Lease records it.
	Scope lease.Scope
	Clock clock.Clock

	mu      sync.Mutex
	status  conditional.Status
	failure error
	changed chan struct{}
	renewed time.Time
}

// String implements conditional.Condition.
func (*Claim) String() string { return "Installation" }

// NeedLeaderElection returns true, because the leader holds the claim for all replicas of the installation.
func (*Claim) NeedLeaderElection() bool { return true }

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,resourceNames=torpor,verbs=get;update

// Start acquires and renews the Lease until ctx is cancelled. It does not release the Lease at the end, because the
// next leader of this installation will continue to renew it.
func (c *Claim) Start(ctx context.Context) error {
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

// Observe implements conditional.Condition.
func (c *Claim) Observe(ctx context.Context, _ conditional.Sources, report func(conditional.Status)) error {
	for {
		status, changed := c.current()
		report(status)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// CheckClaim is a readiness check. It fails if another installation is active. A replica that is not the leader is
// ready.
func (c *Claim) CheckClaim(*http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// IsHeld reports whether this replica is active.
func (c *Claim) IsHeld() bool {
	status, _ := c.current()
	return status.State == conditional.True
}

func (c *Claim) current() (conditional.Status, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
		c.status = conditional.Status{State: conditional.False, Reason: standbyReason, Message: "this replica does not lead"}
	}
	return c.status, c.changed
}

// note records the result of an attempt to renew the Lease. After a failed request, the status does not change until
// the Lease has expired.
func (c *Claim) note(ctx context.Context, err error) {
	before, _ := c.current()
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
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
	if after == before {
		return
	}
	log.FromContext(ctx).Info("The claim of this installation to act has changed",
		"acts", after.State == conditional.True, "reason", after.Reason, "why", after.Message)
	c.status = after
	close(c.changed)
	c.changed = make(chan struct{})
}

// renew acquires or renews the Lease.
func (c *Claim) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held := newLease()
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(held), held)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	now := c.Clock.Now()
	if acting := lease.Read(held, now); acting.Installation != "" && acting.Installation != c.Namespace {
		return fmt.Errorf("%w: the installation in namespace %s holds the Lease %s/%s; the installation in namespace %s waits until the other one is uninstalled%s",
			errTaken, acting.Installation, lease.Namespace, lease.Name, c.Namespace, describeScopes(acting.Scope, c.Scope))
	}
	lease.Take(held, c.Namespace, c.Scope, leaseDuration, now)
	if k8serrors.IsNotFound(err) {
		err = c.Client.Create(ctx, held)
	} else {
		err = c.Client.Update(ctx, held)
	}
	if err != nil {
		return fmt.Errorf("write the Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return nil
}

// describeScopes describes the scopes of both installations, as far as they are known.
func describeScopes(acting *lease.Scope, waiting lease.Scope) string {
	if acting == nil {
		return ""
	}
	return fmt.Sprintf("; the active installation handles %s, and the waiting one would handle %s", acting, waiting)
}

func newLease() *coordinationv1.Lease {
	held := &coordinationv1.Lease{}
	held.Namespace, held.Name = lease.Namespace, lease.Name
	return held
}
