// SPDX-License-Identifier: Apache-2.0

// Package leasereader reads the Lease of the active installation for the plugins and the page.
package leasereader

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/lease"
)

// timeout limits each read of the Lease, which is optional for every caller.
const timeout = 5 * time.Second

// ReadActing returns the active manager. If the Lease cannot be read, it returns the zero value, which means that the
// manager is unknown.
func ReadActing(ctx context.Context, kube client.Reader, now time.Time) lease.Acting {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	held := &coordinationv1.Lease{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: lease.Namespace, Name: lease.Name}, held); err != nil {
		return lease.Acting{}
	}
	return lease.Read(held, now)
}
