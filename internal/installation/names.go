// SPDX-License-Identifier: Apache-2.0

package installation

// ListRecordNames returns the names of what notes who stops things: those of the policies of config/record and their bindings, which are those of the
// webhook configurations of config/record/webhook, too.
func ListRecordNames() []string {
	return []string{"torpor-hibernation-record", "torpor-mysql-record", "torpor-slumber-record", "torpor-workloads-record"}
}
