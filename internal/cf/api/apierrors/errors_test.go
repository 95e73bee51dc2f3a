// SPDX-License-Identifier: Apache-2.0

package apierrors

import (
	"errors"
	"net/http"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestForbiddenOfAQuotaIsNoMissingRight(t *testing.T) {
	t.Parallel()
	apps := schema.GroupResource{Group: "korifi.cloudfoundry.org", Resource: "cfapps"}
	const notAuthorized = "You are not authorized to perform the requested action"
	for name, row := range map[string]struct {
		cause  string
		status int
		detail string
	}{
		"a full quota is reported with its numbers": {
			"exceeded quota: small, requested: count/cfapps=1, used: count/cfapps=1, limited: count/cfapps=1", http.StatusUnprocessableEntity,
			"expected the request to fit into the quotas of the space, found that it does not: exceeded quota: small, requested: count/cfapps=1, used: count/cfapps=1, limited: count/cfapps=1; delete unused objects, or ask for a larger quota",
		},
		"a missing right is reported as a missing right": {`User "bob" cannot create resource "cfapps"`, http.StatusForbidden, notAuthorized},
		"a user name that looks like a quota error is not reported as a quota": {
			`User "is forbidden: exceeded quota: " cannot create resource "cfapps"`, http.StatusForbidden, notAuthorized,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := FromError(k8serrors.NewForbidden(apps, "shop", errors.New(row.cause)), "App")
			if found.Status != row.status || found.Detail != row.detail {
				t.Errorf("expected %d %q, found %d %q", row.status, row.detail, found.Status, found.Detail)
			}
		})
	}
}
