// SPDX-License-Identifier: Apache-2.0

// Package leasereader reads the Leases of the active installation for the plugins and the page.
package leasereader

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

// timeout limits the reads of the Leases, which are optional for every caller.
const timeout = 5 * time.Second

// ReadActing returns what is known about the active installation. The zero value means that nothing is known.
func ReadActing(ctx context.Context, kube client.Reader, now time.Time) lease.Acting {
	acting, _ := FindActing(ctx, kube, now)
	return acting
}

// FindActing returns the active installation. It returns an error if one of the Leases cannot be read, with what is
// known without it.
func FindActing(ctx context.Context, kube client.Reader, now time.Time) (lease.Acting, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	held := &coordinationv1.Lease{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: lease.Namespace, Name: lease.Name}, held); err != nil {
		return lease.Acting{}, fmt.Errorf("read the Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	acting := lease.Read(held, now)
	if acting.Installation == "" {
		return acting, nil
	}
	parts := &coordinationv1.LeaseList{}
	if err := kube.List(ctx, parts, client.InNamespace(acting.Installation), client.HasLabels{torporv1alpha1.PartLabel}); err != nil {
		return acting, fmt.Errorf("list the Leases of the parts in the namespace %s: %w", acting.Installation, err)
	}
	acting.Leaders = lease.ReadLeaders(parts.Items, now)
	return acting, nil
}
