// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"net/http"
	"sync"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/coexist/lease"
)

// Standby compares this replica, while it waits to become the leader, with the leading manager of the same
// installation. Without this check, a waiting replica with other controllers or namespaces would do nothing and report
// no error.
type Standby struct {
	// Claim is the claim of this replica, with its scope.
	Claim *Claim

	mu      sync.Mutex
	failure error
}

// NeedLeaderElection returns false, because the comparison runs on replicas that wait to become the leader.
func (*Standby) NeedLeaderElection() bool { return false }

// Start compares the two managers periodically until ctx is cancelled.
func (s *Standby) Start(ctx context.Context) error {
	for {
		s.compare(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.Claim.Clock.After(renewInterval):
		}
	}
}

// CheckScope is a readiness check. It fails if this replica waits and its scope differs from the leader's. The leader
// is ready.
func (s *Standby) CheckScope(*http.Request) error {
	if s.Claim.IsHeld() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// compare updates the result. It keeps the last result if the Lease cannot be read.
func (s *Standby) compare(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held := newLease()
	err := s.Claim.Reader.Get(call, client.ObjectKeyFromObject(held), held)
	if err != nil && !k8serrors.IsNotFound(err) {
		log.FromContext(ctx).V(1).Info("The Lease of the installation cannot be read", "error", err.Error())
		return
	}
	s.note(ctx, lease.Read(held, s.Claim.Clock.Now()).DescribeSplit(s.Claim.Namespace, s.Claim.Scope))
}

// note records the difference between the two managers, and logs a change.
func (s *Standby) note(ctx context.Context, split string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := ""
	if s.failure != nil {
		before = s.failure.Error()
	}
	if before == split || s.Claim.IsHeld() {
		return
	}
	s.failure = nil
	if split != "" {
		s.failure = errors.New(split)
	}
	log.FromContext(ctx).Info("The readiness of this replica to lead has changed", "ready", split == "", "why", split)
}
