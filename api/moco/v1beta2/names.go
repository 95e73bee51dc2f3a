// SPDX-License-Identifier: Apache-2.0

package v1beta2

import "fmt"

// These annotations of a MySQLCluster control its automation. Except for StoppedInstancesAnnotation, annotations that
// stop or force a step have an effect only with the exact value "true".
const (
	// ClusteringStoppedAnnotation stops clustering while it is "true": Torpor executes no SQL that changes a server,
	// and does not change the role of an instance.
	ClusteringStoppedAnnotation = "moco.cybozu.com/clustering-stopped"
	// ReconciliationStoppedAnnotation stops reconciliation while it is "true": changes to the spec are not applied to
	// other objects.
	ReconciliationStoppedAnnotation = "moco.cybozu.com/reconciliation-stopped"
	// StoppedInstancesAnnotation stops clustering for single instances. Its value is a JSON list of ordinals such as [0,2].
	StoppedInstancesAnnotation = "moco.cybozu.com/clustering-stopped-instances"
	// ForceRolloutAnnotation lets a rollout replace Pods of an unhealthy cluster while it is "true": one at a time, the
	// primary last and without a switchover. Torpor does not remove the annotation.
	ForceRolloutAnnotation = "moco.cybozu.com/force-rolling-update"
	// ForceStartAnnotation lets clustering start, if it is "true", although the start would be refused. Torpor removes
	// the annotation after the start.
	ForceStartAnnotation = "torpor.dev/force-start"
	// LookRequestedAnnotation requests a check of the instances while clustering is stopped. Each new value requests
	// another check. status.pause.lookRequest holds the value once the check is reported. Torpor removes the annotation
	// after the start of clustering.
	LookRequestedAnnotation = "torpor.dev/look-requested"
	// RotationAnnotation, if it is "rotate", requests new passwords for all accounts that Torpor creates; the old
	// passwords remain valid. If it is "discard", it requests that the old passwords become invalid. Torpor removes the
	// annotation when the request is done.
	RotationAnnotation = "torpor.dev/rotate-passwords"
	// TLSSecretAnnotation is the name of a Secret with the servers' certificate in the keys ca.crt, tls.crt and
	// tls.key, as cert-manager creates it. Without the annotation, Torpor issues the certificate.
	TLSSecretAnnotation = "torpor.dev/tls-secret"
)

// Admission records the requester of a stop or a start in these annotations. Each switch has two annotations: the user,
// and the resource version of the MySQLCluster before the request.
const (
	// ClusteringRequestedByAnnotation is the user who last stopped or started clustering.
	ClusteringRequestedByAnnotation = "torpor.dev/clustering-requested-by"
	// ClusteringRequestVersionAnnotation is the resource version before that request.
	ClusteringRequestVersionAnnotation = "torpor.dev/clustering-request-version"
	// ReconciliationRequestedByAnnotation is the user who last stopped or started reconciliation.
	ReconciliationRequestedByAnnotation = "torpor.dev/reconciliation-requested-by"
	// ReconciliationRequestVersionAnnotation is the resource version before that request.
	ReconciliationRequestVersionAnnotation = "torpor.dev/reconciliation-request-version"
	// InstancesRequestedByAnnotation is the user who last stopped or started clustering for single instances.
	InstancesRequestedByAnnotation = "torpor.dev/instances-requested-by"
	// InstancesRequestVersionAnnotation is the resource version before that request.
	InstancesRequestVersionAnnotation = "torpor.dev/instances-request-version"
)

// These annotations hold the end and the reason of the stop of one switch. Without them, torpor.dev/until and
// torpor.dev/reason apply.
const (
	// ClusteringUntilAnnotation is the time at which a stop of clustering ends automatically, in the form of
	// torpor.dev/until.
	ClusteringUntilAnnotation = "torpor.dev/clustering-until"
	// ClusteringReasonAnnotation explains the stop of clustering to users in one sentence.
	ClusteringReasonAnnotation = "torpor.dev/clustering-reason"
	// ReconciliationUntilAnnotation is the time at which a stop of reconciliation ends automatically, in the form of
	// torpor.dev/until.
	ReconciliationUntilAnnotation = "torpor.dev/reconciliation-until"
	// ReconciliationReasonAnnotation explains the stop of reconciliation to users in one sentence.
	ReconciliationReasonAnnotation = "torpor.dev/reconciliation-reason"
	// InstancesUntilAnnotation is the time at which a stop of clustering for single instances ends automatically, in
	// the form of torpor.dev/until.
	InstancesUntilAnnotation = "torpor.dev/instances-until"
	// InstancesReasonAnnotation explains the stop of clustering for single instances to users in one sentence.
	InstancesReasonAnnotation = "torpor.dev/instances-reason"
)

// These are an annotation of the Secret with a cluster's passwords, and its value. MOCO's kubectl plugin ignores a
// Secret without this annotation.
const (
	// SecretVersionAnnotation is the version of the Secret's layout.
	SecretVersionAnnotation = "moco.cybozu.com/secret-version"
	// SecretVersion is the layout in which each key of the Secret holds one password.
	SecretVersion = "1"
)

// These are the values of RotationAnnotation.
const (
	// RotateRequest requests new passwords. The old passwords remain valid.
	RotateRequest = "rotate"
	// DiscardRequest requests that the old passwords become invalid.
	DiscardRequest = "discard"
)

// RotationIDAnnotation identifies a rotation in progress, on the Secret with a cluster's passwords. While it is
// present, accounts may have two valid passwords.
const RotationIDAnnotation = "torpor.dev/rotation-id"

// These are the annotations of the Pods of a MySQLCluster.
const (
	// RecloneAnnotation requests, if it is "true" on a Pod, that the Pod's instance is cloned again from the primary.
	// Torpor removes it once the instance is empty, and from the primary's Pod. If it is "errant" on a MySQLCluster,
	// Torpor may clone every errant replica again.
	RecloneAnnotation = "torpor.dev/reclone"
	// DemoteAnnotation requests a switchover if it is "true" on the primary's Pod. Torpor removes the annotation when
	// the switchover is done.
	DemoteAnnotation = "moco.cybozu.com/demote"
	// PreventDeleteAnnotation is "true" on the primary's Pod while a replica lags by more than
	// spec.maxDelaySecondsForPodDeletion. An admission policy then rejects the deletion of the Pod. Torpor removes the
	// annotation from every other Pod.
	PreventDeleteAnnotation = "moco.cybozu.com/prevent-delete"
	// InputsAnnotation is a hash of the user's settings for the Pod. While the hash does not change, the Pod is kept,
	// even if a new version of Torpor would create the Pod differently.
	InputsAnnotation = "torpor.dev/inputs"
)

// Finalizer delays the deletion of a MySQLCluster, and of the objects that its servers need, until the servers have ended.
const Finalizer = "moco.cybozu.com/mysqlcluster"

// These are the labels of the objects of a MySQLCluster.
const (
	// RoleLabel is primary or replica. It is absent on a Pod without a role.
	RoleLabel = "moco.cybozu.com/role"
	// NameLabel is mysql for the servers, and mysql-backup, mysql-restore or mysql-binlog for Jobs and Deployments of backups.
	NameLabel = "app.kubernetes.io/name"
	// InstanceLabel is the name of the MySQLCluster.
	InstanceLabel = "app.kubernetes.io/instance"
	// CreatedByLabel is always moco.
	CreatedByLabel = "app.kubernetes.io/created-by"
)

// Values of the labels that are the same for every MySQLCluster.
const (
	// NameValue is the value of app.kubernetes.io/name for the servers.
	NameValue = "mysql"
	// CreatedByValue is the value of app.kubernetes.io/created-by.
	CreatedByValue = "moco"
)

// Role is the role of an instance in the replication.
//
// +kubebuilder:validation:Enum=primary;replica
type Role string

const (
	// RolePrimary is the role of the instance from which the others replicate.
	RolePrimary Role = "primary"
	// RoleReplica is the role of an instance that replicates from the primary.
	RoleReplica Role = "replica"
)

// These are fixed values in a MySQLCluster and its Pods.
const (
	// RecloneErrant is the value of RecloneAnnotation on a MySQLCluster.
	RecloneErrant = "errant"
	// MysqldContainer is the container that runs the MySQL server.
	MysqldContainer = "mysqld"
	// InitContainer is the container that creates the data directory.
	InitContainer = "moco-init"
	// ExporterContainer is the container that runs mysqld_exporter, if spec.collectors is not empty.
	ExporterContainer = "mysqld-exporter"
	// SlowLogContainer is the container that prints the slow query log, unless spec.disableSlowQueryLogContainer is
	// true.
	SlowLogContainer = "slow-log"
	// DataClaim is the volume claim that holds the data.
	DataClaim = "mysql-data"
)

// TLSVolume is the volume of a Pod with its server's certificate. Pods that an old version of Torpor created lack it.
const TLSVolume = "mysql-tls"

// stops is the only value with which an annotation stops clustering or reconciliation, or forces a rollout.
const stops = "true"

// ClusteringStopped reports whether a stop of clustering is requested.
func (c *MySQLCluster) ClusteringStopped() bool {
	return c.Annotations[ClusteringStoppedAnnotation] == stops
}

// ReconciliationStopped reports whether a stop of reconciliation is requested.
func (c *MySQLCluster) ReconciliationStopped() bool {
	return c.Annotations[ReconciliationStoppedAnnotation] == stops
}

// RolloutForced reports whether a rollout should proceed even if the cluster is not healthy.
func (c *MySQLCluster) RolloutForced() bool {
	return c.Annotations[ForceRolloutAnnotation] == stops
}

// MaxReplicas is the maximum of spec.replicas. It is far more than the number of replicas that one primary can serve.
const MaxReplicas = 101

// HasPossibleReplicas reports whether spec.replicas is between 0 and MaxReplicas.
func (s MySQLClusterSpec) HasPossibleReplicas() bool {
	return s.Replicas >= 0 && s.Replicas <= MaxReplicas
}

// SourceSecretName returns the name of the Secret with the external server. The name is empty for a cluster without an
// external server.
func (s MySQLClusterSpec) SourceSecretName() string {
	if s.ReplicationSourceSecretName == nil {
		return ""
	}
	return *s.ReplicationSourceSecretName
}

// ChildName returns the name of most objects of a cluster, such as its Secret, its headless Service and its
// StatefulSet.
func (c *MySQLCluster) ChildName() string { return "moco-" + c.Name }

// TLSSecretName returns the name of the Secret with the servers' certificate.
func (c *MySQLCluster) TLSSecretName() string {
	if name := c.Annotations[TLSSecretAnnotation]; name != "" {
		return name
	}
	return c.ChildName() + "-tls"
}

// ClientSecretName returns the name of the Secret that holds an option file of the mysql client for each account.
func (c *MySQLCluster) ClientSecretName() string { return "moco-my-cnf-" + c.Name }

// PodName returns the name of the Pod with the given ordinal.
func (c *MySQLCluster) PodName(ordinal int) string {
	return fmt.Sprintf("%s-%d", c.ChildName(), ordinal)
}

// InstanceHost returns the host name, in the headless Service, of the instance with the given ordinal.
func (c *MySQLCluster) InstanceHost(ordinal int) string {
	return fmt.Sprintf("%s.%s.%s.svc", c.PodName(ordinal), c.ChildName(), c.Namespace)
}

// These are the condition types of a MySQLCluster. In a healthy cluster they are True; RestoreComplete and
// SpecFullySupported may be False.
const (
	// InitializedCondition is True once the cluster has a primary. It is False while the data is being cloned from an
	// external server or restored.
	InitializedCondition = "Initialized"
	// AvailableCondition is True while the primary accepts writes, or serves reads as a copy of an external server. It
	// is Unknown while clustering is stopped, and may be while the primary does not answer.
	AvailableCondition = "Available"
	// HealthyCondition is True while every instance fulfills its role. It is Unknown while clustering is stopped.
	HealthyCondition = "Healthy"
	// StatefulSetReadyCondition is True while every Pod is ready and matches the spec, or the cluster is offline.
	StatefulSetReadyCondition = "StatefulSetReady"
	// ReconcileSuccessCondition is True if the last reconciliation applied the spec to all objects of the cluster.
	ReconcileSuccessCondition = "ReconcileSuccess"
	// ReconciliationActiveCondition is False while reconciliation is stopped.
	ReconciliationActiveCondition = "ReconciliationActive"
	// ClusteringActiveCondition is False while clustering is stopped.
	ClusteringActiveCondition = "ClusteringActive"
	// RestoreCompleteCondition exists after a restore. It is False if parts of the backup were skipped. The message
	// lists these parts.
	RestoreCompleteCondition = "RestoreComplete"
	// SpecFullySupportedCondition is False while the spec sets fields that Torpor does not use, or its ConfigMap
	// contains settings that clustering overrides. The message lists these fields and settings.
	SpecFullySupportedCondition = "SpecFullySupported"
)

// InitializedReason is the reason of Initialized when it is True. It means that the cluster has a primary.
const InitializedReason = "Initialized"

// These are the reasons of Initialized, Available and Healthy: states of the whole cluster. The first state in this
// order that applies is used.
const (
	// OfflineReason means that spec.offline is set or a Slumber stops the cluster, so no instance should run.
	OfflineReason = "Offline"
	// CloningReason means that data is being cloned from an external server.
	CloningReason = "Cloning"
	// RestoringReason means that data is being restored from a backup.
	RestoringReason = "Restoring"
	// HealthyReason means that the primary is available, and every other instance is ready and replicates from the
	// primary.
	HealthyReason = "Healthy"
	// DegradedReason means that the primary is available, and enough replicas acknowledge commits, but not every
	// instance is healthy.
	DegradedReason = "Degraded"
	// FailedReason means that the primary has failed, and enough replicas answer to promote one of them.
	FailedReason = "Failed"
	// LostReason means that the primary has failed, and too few replicas answer to determine which of them has all
	// acknowledged transactions.
	LostReason = "Lost"
	// IncompleteReason means that no other state applies, for example because instances are starting or being
	// configured.
	IncompleteReason = "Incomplete"
)

// These are the reasons of Available and Healthy when they are Unknown.
const (
	// ClusteringStoppedReason means that clustering is stopped, so Torpor does not maintain the state of the cluster.
	ClusteringStoppedReason = "ClusteringStopped"
	// PrimaryUnansweredReason means that the primary has not answered the manager, so it is unknown whether the primary
	// accepts writes. The message contains the cause if it is known.
	PrimaryUnansweredReason = "PrimaryUnanswered"
)

// These are the reasons of ClusteringActive.
const (
	// ClusteringActiveReason means that clustering is active.
	ClusteringActiveReason = "ClusteringActive"
	// ClusteringInactiveReason means that clustering is stopped. Torpor changes no instance.
	ClusteringInactiveReason = "ClusteringInactive"
	// StartRefusedReason means that clustering remains stopped after the end of its stop, because a start would lose
	// transactions or cut off instances. The message lists the problems and the next step.
	StartRefusedReason = "StartRefused"
	// QuiescingReason means that a stop of clustering is requested, and an operation in progress is being brought to a safe point
	// first.
	QuiescingReason = "Quiescing"
)

// These are the reasons of ReconciliationActive.
const (
	// ReconciliationActiveReason means that reconciliation is active.
	ReconciliationActiveReason = "ReconciliationActive"
	// ReconciliationInactiveReason means that reconciliation is stopped.
	ReconciliationInactiveReason = "ReconciliationInactive"
)

// These are the reasons of ReconcileSuccess.
const (
	// ReconcileSuccessReason means that every object matches the spec.
	ReconcileSuccessReason = "ReconcileSuccess"
	// ReconcileFailedReason means that an object is missing or could not be written, or the spec is invalid. The
	// message contains the cause.
	ReconcileFailedReason = "ReconcileFailed"
)

// These are the reasons of StatefulSetReady.
const (
	// StatefulSetReadyReason means that every Pod is ready and matches the spec, or the cluster is offline.
	StatefulSetReadyReason = "StatefulSetReady"
	// StatefulSetNotReadyReason means that Pods are missing, not ready or outdated.
	StatefulSetNotReadyReason = "StatefulSetNotReady"
	// StatefulSetNotFoundReason means that the StatefulSet does not exist yet.
	StatefulSetNotFoundReason = "StatefulSetNotFound"
)

// These are the reasons of SpecFullySupported.
const (
	// FullySupportedReason means that every field and setting of the spec has an effect.
	FullySupportedReason = "FullySupported"
	// FieldsIgnoredReason means that some fields of the spec, or settings of its ConfigMap, have no effect. The message
	// lists them.
	FieldsIgnoredReason = "FieldsIgnored"
)
