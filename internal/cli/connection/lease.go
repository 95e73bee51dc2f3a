// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddLease registers the kind Lease, so that a client can read the Lease of the installation without discovery.
func AddLease(known *runtime.Scheme, mapper *meta.DefaultRESTMapper) error {
	if err := coordinationv1.AddToScheme(known); err != nil {
		return fmt.Errorf("register Leases: %w", err)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	return nil
}
