// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"strings"
)

// WorkloadIdentity is an entry of --azure-workload-identities. It allows the manager to log in as a service principal
// for the clusters of a namespace, with the token of the manager's own ServiceAccount.
type WorkloadIdentity struct{ namespace, tenant, client string }

// ParseWorkloadIdentities parses NAMESPACE=TENANT_ID/CLIENT_ID. The namespace may be *.
func ParseWorkloadIdentities(list []string) ([]WorkloadIdentity, error) {
	var identities []WorkloadIdentity
	for _, entry := range list {
		namespace, principal, _ := strings.Cut(entry, "=")
		tenant, client, _ := strings.Cut(principal, "/")
		if namespace == "" || !isID(tenant) || !isID(client) {
			return nil, fmt.Errorf("expected NAMESPACE=TENANT_ID/CLIENT_ID, with ids such as 00000000-0000-0000-0000-000000000000, found %q", entry)
		}
		identities = append(identities, WorkloadIdentity{namespace, tenant, client})
	}
	return identities, nil
}

// mayUseWorkloadIdentity reports whether the manager's own token may be used for a service principal. The author of a
// Secret chooses the service principal, and service principals of many tenants may trust the manager. An administrator
// therefore lists the namespaces for which each service principal may be used.
func (a *Actuator) mayUseWorkloadIdentity(namespace string, p servicePrincipal) bool {
	for _, listed := range a.options.WorkloadIdentities {
		isForCluster := listed.namespace == "*" || listed.namespace == namespace
		if isForCluster && strings.EqualFold(listed.tenant, p.TenantID) && strings.EqualFold(listed.client, p.ClientID) {
			return true
		}
	}
	return false
}
