// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MySQLCluster is some MySQL servers, one of which is the primary that the others replicate from.
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
// +kubebuilder:printcolumn:name="Until",type="date",JSONPath=".status.clusteringStops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Reconcile By",type="string",JSONPath=".status.reconciliationStops[?(@.requested==true)].by",priority=1
// +kubebuilder:printcolumn:name="Reconcile Until",type="date",JSONPath=".status.reconciliationStops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Instances By",type="string",JSONPath=".status.instanceStops[?(@.requested==true)].by",priority=1
// +kubebuilder:printcolumn:name="Instances Until",type="date",JSONPath=".status.instanceStops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Healthy')].message",priority=1
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 40`,messageExpression=`'metadata.name: expected at most 40 characters, because names of other objects are made from it; found %d; choose a shorter one'.format([size(self.metadata.name)])`
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

// MySQLClusterSpec says what the cluster is. Of the fields that upstream knows, Unsupported tells which are only kept.
//
// +kubebuilder:validation:XValidation:fieldPath=`.podTemplate.spec.containers`,rule=`(has(self.disableSlowQueryLogContainer) && self.disableSlowQueryLogContainer) || !self.podTemplate.spec.containers.exists(c, c.name == 'slow-log')`,message=`expected no container called slow-log, because the name is reserved; found one; rename it or set spec.disableSlowQueryLogContainer`
// +kubebuilder:validation:XValidation:fieldPath=`.podTemplate.spec.containers`,rule=`!has(self.collectors) || size(self.collectors) == 0 || !self.podTemplate.spec.containers.exists(c, c.name == 'mysqld-exporter')`,message=`expected no container called mysqld-exporter beside spec.collectors, because the name is reserved then; found one; rename it or remove the collectors`
// +kubebuilder:validation:XValidation:fieldPath=`.replicationSourceSecretName`,rule=`!has(self.replicationSourceSecretName) || (has(oldSelf.replicationSourceSecretName) && self.replicationSourceSecretName == oldSelf.replicationSourceSecretName)`,message=`expected it to stay or to be removed, because a cluster can only be born as a copy of another server; found it added or changed; make a new MySQLCluster`
// +kubebuilder:validation:XValidation:fieldPath=`.restore`,rule=`has(self.restore) == has(oldSelf.restore) && (!has(self.restore) || self.restore == oldSelf.restore)`,message=`expected it to stay as it was at creation, because data is restored only once; found it changed; make a new MySQLCluster`
type MySQLClusterSpec struct {
	// Replicas is the number of instances, the primary included: odd, so that a majority exists, and never less than before.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=101
	// +kubebuilder:validation:XValidation:rule=`self > 0 && self % 2 == 1`,message=`expected a positive odd number, so that a majority exists; take 1, 3 or 5`
	// +kubebuilder:validation:XValidation:rule=`self >= oldSelf`,messageExpression=`'expected at least %d, because instances cannot be taken away; make a new MySQLCluster, or set spec.offline'.format([oldSelf])`
	Replicas int32 `json:"replicas,omitempty"`
	// PodTemplate is what the Pods are made from.
	PodTemplate PodTemplate `json:"podTemplate"`
	// VolumeClaimTemplates are what the Pods' volumes are made from; mysql-data is for the data.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule=`self.exists(c, has(c.metadata.name) && c.metadata.name == 'mysql-data')`,message=`expected a claim called mysql-data, which holds the data; found none; add it`
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates"`
	// PrimaryServiceTemplate changes the Service that leads to the primary.
	// +optional
	PrimaryServiceTemplate *ServiceTemplate `json:"primaryServiceTemplate,omitempty"`
	// ReplicaServiceTemplate changes the Service that leads to the replicas.
	// +optional
	ReplicaServiceTemplate *ServiceTemplate `json:"replicaServiceTemplate,omitempty"`
	// MySQLConfigMapName names the ConfigMap with settings of the MySQL server.
	// +optional
	// +nullable
	MySQLConfigMapName *string `json:"mysqlConfigMapName,omitempty"`
	// ReplicationSourceSecretName names the Secret, in the cluster's namespace, with the MySQL server outside that this cluster is cloned
	// from and follows: HOST, PORT, USER, PASSWORD, and INIT_AFTER_CLONE_SQL if something is to be run once in the copy. The cluster is
	// read-only until the field is removed.
	// +optional
	// +nullable
	ReplicationSourceSecretName *string `json:"replicationSourceSecretName,omitempty"`
	// Collectors are flags of mysqld_exporter, which runs in every Pod then.
	// +optional
	// +listType=atomic
	Collectors []string `json:"collectors,omitempty"`
	// ServerIDBase is the server id of instance 0, the others count on from there; 0 means that one is chosen.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self >= 0`,message=`expected a positive number; leave it out to have one chosen`
	ServerIDBase int32 `json:"serverIDBase,omitempty"`
	// MaxDelaySeconds is how far a replica may lag behind and still be ready; 0 means any.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	MaxDelaySeconds *int `json:"maxDelaySeconds,omitempty"`
	// MaxDelaySecondsForPodDeletion is the lag of a replica above which the primary's Pod is neither deleted nor evicted; 0 means none.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MaxDelaySecondsForPodDeletion int64 `json:"maxDelaySecondsForPodDeletion,omitempty"`
	// StartupWaitSeconds is how long a MySQL server may take to start; less than 10 counts as 10.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	StartupWaitSeconds int32 `json:"startupWaitSeconds,omitempty"`
	// LogRotationSchedule is when log files are rotated; empty means every five minutes.
	// +optional
	LogRotationSchedule Schedule `json:"logRotationSchedule,omitempty"`
	// LogRotationSize is the size in bytes from which on a log file is rotated; 0 means 64 MiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LogRotationSize int `json:"logRotationSize,omitempty"`
	// BackupPolicyName names the BackupPolicy in the same namespace; none means no backups.
	// +optional
	// +nullable
	BackupPolicyName *string `json:"backupPolicyName,omitempty"`
	// Restore fills a new cluster from the backup of another one.
	// +optional
	Restore *Restore `json:"restore,omitempty"`
	// DisableSlowQueryLogContainer leaves out the container that shows slow queries.
	// +optional
	DisableSlowQueryLogContainer bool `json:"disableSlowQueryLogContainer,omitempty"`
	// SlowQueryLogConfigTmpl configures the container that shows slow queries.
	// +optional
	// +nullable
	SlowQueryLogConfigTmpl *string `json:"slowQueryLogConfigTmpl,omitempty"`
	// AgentUseLocalhost lets upstream's agent reach the MySQL server by the loopback interface.
	// +optional
	AgentUseLocalhost bool `json:"agentUseLocalhost,omitempty"`
	// InitializeTimezoneData fills the tables of time zones when an instance is initialized.
	// +optional
	// +kubebuilder:default=false
	InitializeTimezoneData bool `json:"initializeTimezoneData,omitempty"`
	// Offline stops every instance and keeps the data.
	// +optional
	Offline bool `json:"offline,omitempty"`
}

// UnsupportedFields lists the fields that the spec sets and that Torpor keeps without acting on them, as sorted JSON paths.
func UnsupportedFields(spec MySQLClusterSpec) []string {
	var found []string
	for path, set := range keptFields(spec) {
		if set {
			found = append(found, path)
		}
	}
	for i, c := range spec.PodTemplate.OverwriteContainers {
		if c.Name != InitContainer && (c.Name != ExporterContainer || len(spec.Collectors) == 0) {
			found = append(found, fmt.Sprintf("spec.podTemplate.overwriteContainers[%d]", i))
		}
	}
	slices.Sort(found)
	return found
}

// defaultThreads is what nobody asked for.
const defaultThreads = 4

// keptFields says which of the fields that Torpor never acts on are set.
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
