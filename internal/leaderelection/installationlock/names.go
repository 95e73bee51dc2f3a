// SPDX-License-Identifier: Apache-2.0

package installationlock

// ListRecordNames returns the names of the policies and bindings in config/record, which record the requesters of
// stops. The webhook configurations in config/record/webhook have the same names.
func ListRecordNames() []string {
	return []string{"torpor-hibernation-record", "torpor-mysql-record", "torpor-slumber-record", "torpor-workloads-record"}
}
