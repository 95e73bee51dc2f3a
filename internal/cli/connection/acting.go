// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/lease"
)

// leaseTimeout bounds how long a command waits to learn which manager acts, which it can do without.
const leaseTimeout = 5 * time.Second

// AddLease lets a client read the Lease of the installation without discovery.
func AddLease(known *runtime.Scheme, mapper *meta.DefaultRESTMapper) error {
	if err := coordinationv1.AddToScheme(known); err != nil {
		return fmt.Errorf("register Leases: %w", err)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	return nil
}

// ReadActing returns the manager that acts, if the caller may read the Lease. Without an answer, it returns the zero
// value, which means unknown.
func ReadActing(ctx context.Context, kube client.Reader, now time.Time) lease.Acting {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	held := &coordinationv1.Lease{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: lease.Namespace, Name: lease.Name}, held); err != nil {
		return lease.Acting{}
	}
	return lease.Read(held, now)
}
