// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MySQLCluster is a group of MySQL servers: a primary, and replicas that replicate from it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=mysqlclusters,singular=mysqlcluster,scope=Namespaced
// +kubebuilder:printcolumn:name="Available",type="string",JSONPath=".status.conditions[?(@.type=='Available')].status"
// +kubebuilder:printcolumn:name="Healthy",type="string",JSONPath=".status.conditions[?(@.type=='Healthy')].status"
// +kubebuilder:printcolumn:name="Primary",type="integer",JSONPath=".status.currentPrimaryIndex"
// +kubebuilder:printcolumn:name="Synced replicas",type="integer",JSONPath=".status.syncedReplicas"
// +kubebuilder:printcolumn:name="Errant replicas",type="integer",JSONPath=".status.errantReplicas"
// +kubebuilder:printcolumn:name="Clustering Active",type="string",JSONPath=".status.conditions[?(@.type=='ClusteringActive')].status"
// +kubebuilder:printcolumn:name="Reconcile Active",type="string",JSONPath=".status.conditions[?(@.type=='ReconciliationActive')].status"
// +kubebuilder:printcolumn:name="Last backup",type="string",JSONPath=".status.backup.time"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.conditions[?(@.type=='Healthy')].lastTransitionTime",priority=1
// +kubebuilder:printcolumn:name="By",type="string",JSONPath=".status.clusteringStops[?(@.requested==true)].by",priority=1
// +kubebuilder:printcolumn:name="Until",type="string",JSONPath=".status.clusteringStops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Reconcile By",type="string",JSONPath=".status.reconciliationStops[?(@.requested==true)].by",priority=1
// +kubebuilder:printcolumn:name="Reconcile Until",type="string",JSONPath=".status.reconciliationStops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Instances By",type="string",JSONPath=".status.instanceStops[?(@.requested==true)].by",priority=1
// +kubebuilder:printcolumn:name="Instances Until",type="string",JSONPath=".status.instanceStops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Healthy')].message",priority=1
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 40`,messageExpression=`'metadata.name: expected at most 40 characters, because the names of other objects contain it; found %d; choose a shorter one'.format([size(self.metadata.name)])`
// +kubebuilder:validation:XValidation:rule=`!self.metadata.name.contains('.')`,message=`metadata.name: expected no dot, because Services are named after it and cannot have one; found one; choose another name`
type MySQLCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MySQLClusterSpec `json:"spec"`
	// +optional
	Status MySQLClusterStatus `json:"status,omitempty"`
}

// MySQLClusterList is a list of MySQLClusters.
//
// +kubebuilder:object:root=true
type MySQLClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MySQLCluster `json:"items"`
}

// MySQLClusterSpec is the desired state of a MySQLCluster. The condition SpecFullySupported lists the fields that are
// set but have no effect.
//
// +kubebuilder:validation:XValidation:fieldPath=`.podTemplate.spec.containers`,rule=`(has(self.disableSlowQueryLogContainer) && self.disableSlowQueryLogContainer) || !self.podTemplate.spec.containers.exists(c, c.name == 'slow-log')`,message=`expected no container called slow-log, because the name is reserved; found one; rename it or set spec.disableSlowQueryLogContainer`
// +kubebuilder:validation:XValidation:fieldPath=`.podTemplate.spec.containers`,rule=`!has(self.collectors) || size(self.collectors) == 0 || !self.podTemplate.spec.containers.exists(c, c.name == 'mysqld-exporter')`,message=`expected no container called mysqld-exporter if spec.collectors is set, because Torpor adds a container of that name; found one; rename it or remove the collectors`
// +kubebuilder:validation:XValidation:fieldPath=`.replicationSourceSecretName`,rule=`!has(self.replicationSourceSecretName) || (has(oldSelf.replicationSourceSecretName) && self.replicationSourceSecretName == oldSelf.replicationSourceSecretName)`,message=`expected no change except a removal, because only a new cluster can copy another server; found an added or changed value; create a new MySQLCluster`
// +kubebuilder:validation:XValidation:fieldPath=`.restore`,rule=`has(self.restore) == has(oldSelf.restore) && (!has(self.restore) || self.restore == oldSelf.restore)`,message=`expected no change after the creation, because data is restored only once; found one; create a new MySQLCluster`
type MySQLClusterSpec struct {
	// Replicas is the number of instances, including the primary. It must be odd, so that a majority exists, and cannot be decreased.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=101
	// +kubebuilder:validation:XValidation:rule=`self > 0 && self % 2 == 1`,message=`expected a positive odd number, so that a majority exists; take 1, 3 or 5`
	// +kubebuilder:validation:XValidation:rule=`self >= oldSelf`,messageExpression=`'expected at least %d, because instances cannot be removed; create a new MySQLCluster, or set spec.offline'.format([oldSelf])`
	Replicas int32 `json:"replicas,omitempty"`
	// PodTemplate is the template of the Pods.
	PodTemplate PodTemplate `json:"podTemplate"`
	// VolumeClaimTemplates are the templates of the Pods' volume claims. The claim mysql-data holds the data of MySQL.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule=`self.exists(c, has(c.metadata.name) && c.metadata.name == 'mysql-data')`,message=`expected a claim called mysql-data, which holds the data; found none; add it`
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates"`
	// PrimaryServiceTemplate customizes the Service of the primary.
	// +optional
	PrimaryServiceTemplate *ServiceTemplate `json:"primaryServiceTemplate,omitempty"`
	// ReplicaServiceTemplate customizes the Service of the replicas.
	// +optional
	ReplicaServiceTemplate *ServiceTemplate `json:"replicaServiceTemplate,omitempty"`
	// MySQLConfigMapName is the name of the ConfigMap with settings for mysqld.
	// +optional
	// +nullable
	MySQLConfigMapName *string `json:"mysqlConfigMapName,omitempty"`
	// ReplicationSourceSecretName is the name of a Secret in the cluster's namespace. It describes the external MySQL
	// server from which the cluster is cloned and then replicates, in the keys HOST, PORT, USER, PASSWORD, and
	// optionally INIT_AFTER_CLONE_SQL, which is run once in the copy. The cluster is read-only until the field is
	// removed.
	// +optional
	// +nullable
	ReplicationSourceSecretName *string `json:"replicationSourceSecretName,omitempty"`
	// Collectors are the names of collectors of mysqld_exporter. If the list is not empty, mysqld_exporter runs in
	// every Pod.
	// +optional
	// +listType=atomic
	Collectors []string `json:"collectors,omitempty"`
	// ServerIDBase is the server id of instance 0. The other instances have consecutive ids. 0 means that Torpor
	// chooses the id.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self >= 0`,message=`expected a positive number; correct it, or remove the field so that Torpor chooses one`
	ServerIDBase int32 `json:"serverIDBase,omitempty"`
	// MaxDelaySeconds is the replication lag above which the Service for readers does not select a replica. 0 means no
	// limit.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	MaxDelaySeconds *int `json:"maxDelaySeconds,omitempty"`
	// MaxDelaySecondsForPodDeletion is the replication lag of a replica above which the deletion and the eviction of the primary's Pod are
	// rejected. 0 means no limit.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MaxDelaySecondsForPodDeletion int64 `json:"maxDelaySecondsForPodDeletion,omitempty"`
	// StartupWaitSeconds limits how long mysqld may take to start. A value below 10 counts as 10.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	StartupWaitSeconds int32 `json:"startupWaitSeconds,omitempty"`
	// LogRotationSchedule is a field of MOCO, which Torpor preserves and does not use. Log files are rotated by size
	// only.
	// +optional
	LogRotationSchedule Schedule `json:"logRotationSchedule,omitempty"`
	// LogRotationSize is the size in bytes at which a log file is rotated. 0 means 64 MiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LogRotationSize int `json:"logRotationSize,omitempty"`
	// BackupPolicyName is the name of the BackupPolicy in the same namespace. Empty means that no backups are made.
	// +optional
	// +nullable
	BackupPolicyName *string `json:"backupPolicyName,omitempty"`
	// Restore identifies the backup whose data this new cluster gets.
	// +optional
	Restore *Restore `json:"restore,omitempty"`
	// DisableSlowQueryLogContainer omits the container that prints the slow query log.
	// +optional
	DisableSlowQueryLogContainer bool `json:"disableSlowQueryLogContainer,omitempty"`
	// SlowQueryLogConfigTmpl is a field of MOCO, which Torpor preserves and does not use.
	// +optional
	// +nullable
	SlowQueryLogConfigTmpl *string `json:"slowQueryLogConfigTmpl,omitempty"`
	// AgentUseLocalhost is a field of MOCO, which Torpor preserves and does not use.
	// +optional
	AgentUseLocalhost bool `json:"agentUseLocalhost,omitempty"`
	// InitializeTimezoneData loads the time zone tables when an instance is initialized.
	// +optional
	// +kubebuilder:default=false
	InitializeTimezoneData bool `json:"initializeTimezoneData,omitempty"`
	// Offline stops every instance. The data is kept.
	// +optional
	Offline bool `json:"offline,omitempty"`
}

// UnsupportedFields returns the sorted JSON paths of the spec's fields that are set but have no effect.
func UnsupportedFields(spec MySQLClusterSpec) []string {
	var found []string
	for path, set := range keptFields(spec) {
		if set {
			found = append(found, path)
		}
	}
	for i, c := range spec.PodTemplate.OverwriteContainers {
		exists := map[string]bool{InitContainer: true, ExporterContainer: len(spec.Collectors) > 0, SlowLogContainer: !spec.DisableSlowQueryLogContainer}
		if !exists[c.Name] {
			found = append(found, fmt.Sprintf("spec.podTemplate.overwriteContainers[%d]", i))
		}
	}
	if b := bucketOfRestore(spec); b != nil && b.BackendType != "" && b.BackendType != BackendS3 {
		found = append(found, fmt.Sprintf("spec.restore.jobConfig.bucketConfig.backendType (%s is not supported, so nothing is restored; "+
			"use s3, which Google Cloud Storage also supports, or copy the backup)", b.BackendType))
	}
	slices.Sort(found)
	return found
}

// BackendS3 is the only supported protocol of buckets.
const BackendS3 = "s3"

func bucketOfRestore(spec MySQLClusterSpec) *BucketConfig {
	if spec.Restore == nil {
		return nil
	}
	return spec.Restore.JobConfig.BucketConfig
}

// defaultThreads is the default of spec.restore.jobConfig.threads.
const defaultThreads = 4

// keptFields returns the fields that Torpor preserves and does not use, and whether each is set.
func keptFields(spec MySQLClusterSpec) map[string]bool {
	return map[string]bool{
		"spec.agentUseLocalhost":                    spec.AgentUseLocalhost,
		"spec.logRotationSchedule":                  spec.LogRotationSchedule != "",
		"spec.podTemplate.metadata.name":            spec.PodTemplate.Name != "",
		"spec.primaryServiceTemplate.metadata.name": spec.PrimaryServiceTemplate != nil && spec.PrimaryServiceTemplate.Name != "",
		"spec.replicaServiceTemplate.metadata.name": spec.ReplicaServiceTemplate != nil && spec.ReplicaServiceTemplate.Name != "",
		"spec.restore.jobConfig.threads":            spec.Restore != nil && spec.Restore.JobConfig.Threads > defaultThreads,
		"spec.slowQueryLogConfigTmpl":               isSet(spec.SlowQueryLogConfigTmpl),
	}
}

func isSet(s *string) bool { return s != nil && *s != "" }
