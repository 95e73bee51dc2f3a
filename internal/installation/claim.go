// SPDX-License-Identifier: Apache-2.0

// Package installation lets one Torpor act on a cluster. The leader's Lease is in the namespace of each installation, so that a
// second installation in another namespace has a leader too; the Lease of this package is one for the cluster.
package installation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional"
)

// The Lease of the installation that acts; its holder is the namespace of that installation.
const (
	LeaseNamespace = metav1.NamespaceSystem
	LeaseName      = "torpor"
)

const (
	leaseDuration = time.Minute
	renewInterval = 15 * time.Second
	retryInterval = 2 * time.Second
	callTimeout   = 10 * time.Second
)

// Reasons of the condition while the installation does not act.
const (
	standbyReason = "Standby"
	otherReason   = "AnotherInstallation"
	lostReason    = "LeaseLost"
)

// errTaken is that another installation acts.
var errTaken = errors.New("another Torpor acts on this cluster")

// Claim is the claim of an installation to act. It is a conditional.Condition that holds while the Lease is held.
type Claim struct {
	// Reader reads past any cache, and Client writes.
	Reader client.Reader
	Client client.Client
	// Namespace is that of the installation.
	Namespace string
	Clock     clock.Clock

	mu      sync.Mutex
	status  conditional.Status
	failure error
	changed chan struct{}
	renewed time.Time
}

// String implements conditional.Condition.
func (*Claim) String() string { return "Installation" }

// NeedLeaderElection is true: the leader of the installation claims for all its replicas.
func (*Claim) NeedLeaderElection() bool { return true }

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,resourceNames=torpor,verbs=get;update

// Start claims and renews until ctx ends. The Lease is kept then, because the next leader of this installation goes on with it.
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

// CheckClaim is for the readiness of the replica. One that does not lead is ready.
func (c *Claim) CheckClaim(*http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// IsHeld reports whether this replica acts.
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

// note keeps what an attempt came to. A failed call changes nothing until the Lease has run out.
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
	log.FromContext(ctx).Info("Whether this installation acts has changed", "acts", after.State == conditional.True, "reason", after.Reason, "why", after.Message)
	c.status = after
	close(c.changed)
	c.changed = make(chan struct{})
}

// renew takes or keeps the Lease.
func (c *Claim) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: LeaseName}}
	err := c.Reader.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the Lease %s/%s: %w", LeaseNamespace, LeaseName, err)
	}
	now := c.Clock.Now()
	if other := liveHolder(lease, now); other != "" && other != c.Namespace {
		return fmt.Errorf("%w: the Lease %s/%s is held by the one in the namespace %s; this one, in %s, waits until that is uninstalled",
			errTaken, LeaseNamespace, LeaseName, other, c.Namespace)
	}
	takeLease(lease, c.Namespace, now)
	if k8serrors.IsNotFound(err) {
		err = c.Client.Create(ctx, lease)
	} else {
		err = c.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("write the Lease %s/%s: %w", LeaseNamespace, LeaseName, err)
	}
	return nil
}

// liveHolder is the installation that acts; empty if none does.
func liveHolder(l *coordinationv1.Lease, now time.Time) string {
	s := l.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return ""
	}
	if life := time.Duration(*s.LeaseDurationSeconds) * time.Second; !now.Before(s.RenewTime.Add(life)) {
		return ""
	}
	return *s.HolderIdentity
}

func takeLease(l *coordinationv1.Lease, namespace string, now time.Time) {
	s := &l.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != namespace {
		transitions := int32(1)
		if s.LeaseTransitions != nil {
			transitions += *s.LeaseTransitions
		}
		s.AcquireTime, s.LeaseTransitions = new(metav1.NewMicroTime(now)), &transitions
	}
	s.HolderIdentity, s.LeaseDurationSeconds = &namespace, new(int32(leaseDuration.Seconds()))
	s.RenewTime = new(metav1.NewMicroTime(now))
}
