// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/accounts"
	"github.com/torpor-dev/torpor/internal/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act performs the one effect of a plan and does not wait for it: a later pass observes what came of it.
func (c Controller) act(ctx context.Context, seen *clusterObservation, plan hibernation.Plan) error {
	switch do := plan.Do.(type) {
	case hibernation.StopMachines:
		c.accounts.Order(seen.name, accounts.StopVerb, do.IDs, plan.RetryAfter)
	case hibernation.StartMachines:
		c.accounts.Order(seen.name, accounts.StartVerb, do.IDs, plan.RetryAfter)
	case hibernation.ApproveRequests:
		// Machines that are being started go on.
		c.accounts.Withdraw(seen.name, accounts.StopVerb)
		log.FromContext(ctx).Info("Approving certificate requests", "requests", do.Requests)
		return approveRequests(ctx, seen, do.Requests)
	case hibernation.NoAction:
		c.accounts.Withdraw(seen.name, accounts.StopVerb, accounts.StartVerb)
	}
	return nil
}

// mayStop reads from the hub itself whether a cluster's machines may still be stopped.
func (c Controller) mayStop(ctx context.Context, name types.NamespacedName) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var cd hivev1.ClusterDeployment
	if err := c.secrets.Get(ctx, name, &cd); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	o := c.observeObject(&cd)
	return hibernation.NeedsCloud(o) && o.DesiredPowerState == hivev1.PowerStateHibernating, nil
}

// noteApproval remembers an approval at once: whatever becomes of the others and of the status, it was made.
func (s *clusterObservation) noteApproval(request string) {
	for _, v := range s.verdicts {
		if v.Name == request {
			s.approvals.noteApproval(v, s.Now)
		}
	}
}

func approveRequests(ctx context.Context, seen *clusterObservation, names []string) error {
	var failed error
	for _, name := range names {
		i := slices.IndexFunc(seen.requests, func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == name })
		if i < 0 {
			continue
		}
		err := seen.cluster.ApproveRequest(ctx, &seen.requests[i])
		if err == nil {
			seen.noteApproval(name)
		}
		// A request that was decided, changed or deleted since it was judged does not hold back the others.
		if err != nil && !k8serrors.IsConflict(err) && !k8serrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil {
		return nil
	}
	return &reconcile.RefusedError{
		Class: string(actuator.Unreachable), Message: "Certificate requests cannot be approved: " + targetcluster.DescribeError(failed), Err: failed,
	}
}
