// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator/actuatortest"
)

// TestPermissionsAreDocumented compares the permissions on the page of IBM Cloud with the calls of a hibernation and a
// resume.
func TestPermissionsAreDocumented(t *testing.T) {
	c := startIBMCloud(t).newCluster()
	actuatortest.HibernateAndResume(t, c, c.Create(t, 2))
	const instance = "is.instance.instance."
	actuatortest.ExpectDocumented(t, "ibmcloud", `is\.instance\.instance\.\w+`, actuatortest.PermissionsOf(t, c.CountCalls(), map[string][]string{
		login: {}, list: {instance + "list"}, instanceRead: {instance + "read"}, stop: {instance + "operate"}, start: {instance + "operate"},
	}))
}
