// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/hibernate"
	"github.com/torpor-dev/torpor/internal/hibernate/reach"
	"github.com/torpor-dev/torpor/internal/kit"
)

// act performs the one effect of a plan and does not wait for it: the next pass observes what came of it.
func act(ctx context.Context, seen *observation, do hibernate.Action) *hibernate.Trouble {
	switch do := do.(type) {
	case hibernate.Stop:
		log.FromContext(ctx).Info("Stopping machines", kit.KeyMachines, do.IDs)
		return refused(seen.actuator.Stop(ctx, seen.target, do.IDs))
	case hibernate.Start:
		log.FromContext(ctx).Info("Starting machines", kit.KeyMachines, do.IDs)
		return refused(seen.actuator.Start(ctx, seen.target, do.IDs))
	case hibernate.Approve:
		log.FromContext(ctx).Info("Approving certificate requests", kit.KeyRequests, do.Requests)
		return approve(ctx, seen, do.Requests)
	case hibernate.Nothing:
		return nil
	default:
		return nil
	}
}

func refused(err error) *hibernate.Trouble {
	if err == nil {
		return nil
	}
	return cloudTrouble(err)
}

// approve goes on after a request that cannot be approved: it may have been decided or deleted meanwhile.
func approve(ctx context.Context, seen *observation, names []string) *hibernate.Trouble {
	var failed error
	for _, name := range names {
		i := slices.IndexFunc(seen.requests, func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == name })
		if i < 0 {
			continue
		}
		err := seen.cluster.Approve(ctx, &seen.requests[i])
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil {
		return nil
	}
	return &hibernate.Trouble{Class: actuator.Unreachable, Message: "Certificate requests cannot be approved: " + reach.Describe(failed)}
}
