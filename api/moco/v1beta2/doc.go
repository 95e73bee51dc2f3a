// SPDX-License-Identifier: Apache-2.0

// Package v1beta2 is the API moco.cybozu.com/v1beta2: MySQLCluster, some MySQL servers of which one is the primary,
// and BackupPolicy, when and how they are backed up. Names, paths, defaults and columns follow upstream MOCO, so that
// its manifests apply here; what upstream's webhooks refuse is refused by the schema.
//
// +kubebuilder:object:generate=true
// +groupName=moco.cybozu.com
package v1beta2
