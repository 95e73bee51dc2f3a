// SPDX-License-Identifier: Apache-2.0

package v1beta2

import "fmt"

// Annotations of a MySQLCluster by which somebody stops something. Only the exact value "true" stops; why and until
// when is said by the annotations of torpor.dev.
const (
	// ClusteringStoppedAnnotation stops clustering when it is "true": no SQL is run that changes anything, no role is moved.
	ClusteringStoppedAnnotation = "moco.cybozu.com/clustering-stopped"
	// ReconciliationStoppedAnnotation stops reconciliation when it is "true": a changed spec reaches no other object.
	ReconciliationStoppedAnnotation = "moco.cybozu.com/reconciliation-stopped"
	// StoppedInstancesAnnotation stops clustering for single instances; its value is a JSON list of ordinals such as [0,2].
	StoppedInstancesAnnotation = "moco.cybozu.com/clustering-stopped-instances"
	// ForceStartAnnotation starts clustering when it is "true", also where a start is refused. It is removed after the start.
	ForceStartAnnotation = "torpor.dev/force-start"
	// LookRequestedAnnotation asks for a look at the instances while clustering is stopped. Any new value does; status.pause
	// repeats it when that look is reported. It is removed after the start.
	LookRequestedAnnotation = "torpor.dev/look-requested"
	// RotationAnnotation asks for new passwords of all accounts when it is "rotate", and for the end of the old ones, which are
	// valid until then, when it is "discard". It is removed when that is done.
	RotationAnnotation = "torpor.dev/rotate-passwords"
	// TLSSecretAnnotation names a Secret with the servers' certificate, such as cert-manager makes: ca.crt, tls.crt and tls.key.
	// Without it Torpor makes the certificate.
	TLSSecretAnnotation = "torpor.dev/tls-secret"
)

// Annotations by which admission notes who stopped something of a MySQLCluster or started it again, in that very request. Each switch has
// its own two: the user, and the resource version that the MySQLCluster had before.
const (
	// ClusteringRequestedByAnnotation is who last stopped or started clustering.
	ClusteringRequestedByAnnotation = "torpor.dev/clustering-requested-by"
	// ClusteringRequestVersionAnnotation is the resource version before that.
	ClusteringRequestVersionAnnotation = "torpor.dev/clustering-request-version"
	// ReconciliationRequestedByAnnotation is who last stopped or started reconciliation.
	ReconciliationRequestedByAnnotation = "torpor.dev/reconciliation-requested-by"
	// ReconciliationRequestVersionAnnotation is the resource version before that.
	ReconciliationRequestVersionAnnotation = "torpor.dev/reconciliation-request-version"
	// InstancesRequestedByAnnotation is who last began to leave single instances alone, or ended that.
	InstancesRequestedByAnnotation = "torpor.dev/instances-requested-by"
	// InstancesRequestVersionAnnotation is the resource version before that.
	InstancesRequestVersionAnnotation = "torpor.dev/instances-request-version"
)

// Annotations that say more about one stop. Where a switch has none of its own, torpor.dev/until and torpor.dev/reason are about it.
const (
	// ClusteringUntilAnnotation is when a stop of clustering ends by itself, as torpor.dev/until has it.
	ClusteringUntilAnnotation = "torpor.dev/clustering-until"
	// ClusteringReasonAnnotation is why clustering is stopped, in a sentence for people.
	ClusteringReasonAnnotation = "torpor.dev/clustering-reason"
	// ReconciliationUntilAnnotation is when a stop of reconciliation ends by itself, as torpor.dev/until has it.
	ReconciliationUntilAnnotation = "torpor.dev/reconciliation-until"
	// ReconciliationReasonAnnotation is why reconciliation is stopped, in a sentence for people.
	ReconciliationReasonAnnotation = "torpor.dev/reconciliation-reason"
	// InstancesUntilAnnotation is when single instances are no longer left alone, as torpor.dev/until has it.
	InstancesUntilAnnotation = "torpor.dev/instances-until"
	// InstancesReasonAnnotation is why single instances are left alone, in a sentence for people.
	InstancesReasonAnnotation = "torpor.dev/instances-reason"
)

// The annotation of the Secret with a cluster's passwords, and its value: upstream's plugin reads no Secret without.
const (
	// SecretVersionAnnotation says how the Secret is laid out.
	SecretVersionAnnotation = "moco.cybozu.com/secret-version"
	// SecretVersion is the layout with one password under each of its keys.
	SecretVersion = "1"
)

// The values of the annotation that asks for new passwords.
const (
	// RotateRequest asks for new passwords beside the old ones.
	RotateRequest = "rotate"
	// DiscardRequest asks for the end of the old passwords.
	DiscardRequest = "discard"
)

// RotationIDAnnotation is on the Secret with a cluster's passwords while accounts have two passwords, or are about to.
const RotationIDAnnotation = "torpor.dev/rotation-id"

// Annotations of the Pods of a MySQLCluster.
const (
	// RecloneAnnotation on a Pod asks for its instance to be cloned anew from the primary when it is "true"; it is removed when the
	// instance is empty. On a MySQLCluster it lets every errant replica be cloned anew when it is "errant".
	RecloneAnnotation = "torpor.dev/reclone"
	// DemoteAnnotation asks for a switchover when it is "true" on the primary's Pod; it is removed when that is done.
	DemoteAnnotation = "moco.cybozu.com/demote"
	// InputsAnnotation is a hash of what users have asked for of the Pod. One that was made for the same stays, although another version
	// of Torpor would make it differently.
	InputsAnnotation = "torpor.dev/inputs"
)

// Finalizer keeps a MySQLCluster, and with it what its servers need, until they have ended.
const Finalizer = "moco.cybozu.com/mysqlcluster"

// Labels of what belongs to a MySQLCluster.
const (
	// RoleLabel is primary or replica on a Pod that has the role, and missing on one that has none.
	RoleLabel = "moco.cybozu.com/role"
	// NameLabel is always mysql.
	NameLabel = "app.kubernetes.io/name"
	// InstanceLabel is the name of the MySQLCluster.
	InstanceLabel = "app.kubernetes.io/instance"
	// CreatedByLabel is always moco.
	CreatedByLabel = "app.kubernetes.io/created-by"
)

// Values of the labels that are the same for every MySQLCluster.
const (
	// NameValue is the value of app.kubernetes.io/name.
	NameValue = "mysql"
	// CreatedByValue is the value of app.kubernetes.io/created-by.
	CreatedByValue = "moco"
)

// Role is what an instance does in the replication.
//
// +kubebuilder:validation:Enum=primary;replica
type Role string

const (
	// RolePrimary is the role of the instance that takes writes.
	RolePrimary Role = "primary"
	// RoleReplica is the role of an instance that follows the primary.
	RoleReplica Role = "replica"
)

// Names inside a MySQLCluster that its schema demands.
const (
	// RecloneErrant is the value of RecloneAnnotation on a MySQLCluster.
	RecloneErrant = "errant"
	// MysqldContainer is the container that runs the MySQL server.
	MysqldContainer = "mysqld"
	// InitContainer is the container that makes the data directory.
	InitContainer = "moco-init"
	// ExporterContainer is the container with mysqld_exporter, if there are collectors.
	ExporterContainer = "mysqld-exporter"
	// DataClaim is the volume claim that holds the data.
	DataClaim = "mysql-data"
)

// TLSVolume is the volume of a Pod with its server's certificate. A Pod from before there were certificates has none.
const TLSVolume = "mysql-tls"

// stops is the only value of an annotation that stops something.
const stops = "true"

// ClusteringStopped says whether somebody wants clustering to be stopped.
func (c *MySQLCluster) ClusteringStopped() bool {
	return c.Annotations[ClusteringStoppedAnnotation] == stops
}

// ReconciliationStopped says whether somebody wants reconciliation to be stopped.
func (c *MySQLCluster) ReconciliationStopped() bool {
	return c.Annotations[ReconciliationStoppedAnnotation] == stops
}

// MaxReplicas is the most that spec.replicas may be, far above what one primary can feed.
const MaxReplicas = 101

// HasPossibleReplicas says whether there can be so many instances.
func (s MySQLClusterSpec) HasPossibleReplicas() bool {
	return s.Replicas >= 0 && s.Replicas <= MaxReplicas
}

// SourceSecretName is the name of the Secret with the server outside; empty for a cluster of its own.
func (s MySQLClusterSpec) SourceSecretName() string {
	if s.ReplicationSourceSecretName == nil {
		return ""
	}
	return *s.ReplicationSourceSecretName
}

// ChildName is the name that most objects of a cluster have: its Secret, its headless Service and its StatefulSet.
func (c *MySQLCluster) ChildName() string { return "moco-" + c.Name }

// TLSSecretName is the name of the Secret with the servers' certificate.
func (c *MySQLCluster) TLSSecretName() string {
	if name := c.Annotations[TLSSecretAnnotation]; name != "" {
		return name
	}
	return c.ChildName() + "-tls"
}

// ClientSecretName is the name of the Secret with a file for the program mysql for each account.
func (c *MySQLCluster) ClientSecretName() string { return "moco-my-cnf-" + c.Name }

// PodName is the name of the Pod with an ordinal.
func (c *MySQLCluster) PodName(ordinal int) string {
	return fmt.Sprintf("%s-%d", c.ChildName(), ordinal)
}

// InstanceHost is the name that the headless Service gives to the instance with an ordinal.
func (c *MySQLCluster) InstanceHost(ordinal int) string {
	return fmt.Sprintf("%s.%s.%s.svc", c.PodName(ordinal), c.ChildName(), c.Namespace)
}

// Condition types of a MySQLCluster. In the normal case every one is True.
const (
	// InitializedCondition is True once the data exists: neither cloned from elsewhere nor restored at the moment.
	InitializedCondition = "Initialized"
	// AvailableCondition is True when the primary takes writes; Unknown while clustering is stopped.
	AvailableCondition = "Available"
	// HealthyCondition is True when every instance does what its role demands; Unknown while clustering is stopped.
	HealthyCondition = "Healthy"
	// StatefulSetReadyCondition is True when every Pod is available and of the newest revision.
	StatefulSetReadyCondition = "StatefulSetReady"
	// ReconcileSuccessCondition is True when the last reconciliation brought the spec to every other object.
	ReconcileSuccessCondition = "ReconcileSuccess"
	// ReconciliationActiveCondition is False while somebody has stopped reconciliation.
	ReconciliationActiveCondition = "ReconciliationActive"
	// ClusteringActiveCondition is False while somebody has stopped clustering.
	ClusteringActiveCondition = "ClusteringActive"
	// SpecFullySupportedCondition is False while the spec has fields that Torpor does not act on; the message lists them.
	SpecFullySupportedCondition = "SpecFullySupported"
)

// Reasons of Initialized, Available and Healthy: the state of the whole cluster, the first in this order that fits.
const (
	// OfflineReason means that the spec says offline, so no instance runs.
	OfflineReason = "Offline"
	// CloningReason means that data is being cloned from a server outside.
	CloningReason = "Cloning"
	// RestoringReason means that data is being restored from a backup.
	RestoringReason = "Restoring"
	// HealthyReason means that every instance is ready and replicates from a primary that takes writes.
	HealthyReason = "Healthy"
	// DegradedReason means that the primary takes writes and enough replicas follow, but not all.
	DegradedReason = "Degraded"
	// FailedReason means that the primary is lost, and enough replicas are there to take one of them.
	FailedReason = "Failed"
	// LostReason means that the primary is lost, and too few replicas are there to know which has all data.
	LostReason = "Lost"
	// IncompleteReason means that the instances are not yet what they should be, and are being made so.
	IncompleteReason = "Incomplete"
)

// Reasons of Initialized, Available and Healthy when they are Unknown.
const (
	// ClusteringStoppedReason means that somebody has stopped clustering, so nobody vouches for the state.
	ClusteringStoppedReason = "ClusteringStopped"
	// NotObservedReason means that the instances could not be asked yet; the message says what is missing.
	NotObservedReason = "NotObserved"
)

// Reasons of ClusteringActive.
const (
	// ClusteringActiveReason means that clustering goes on.
	ClusteringActiveReason = "ClusteringActive"
	// ClusteringInactiveReason means that clustering is stopped; nothing changes an instance any more.
	ClusteringInactiveReason = "ClusteringInactive"
	// StartRefusedReason means that clustering stays stopped although nobody asks for it any more, since a start would lose
	// transactions or cut off instances; the message says which and what to do.
	StartRefusedReason = "StartRefused"
	// QuiescingReason means that clustering was told to stop and brings an operation that is under way to a safe point first.
	QuiescingReason = "Quiescing"
)

// Reasons of ReconciliationActive.
const (
	// ReconciliationActiveReason means that reconciliation goes on.
	ReconciliationActiveReason = "ReconciliationActive"
	// ReconciliationInactiveReason means that reconciliation is stopped.
	ReconciliationInactiveReason = "ReconciliationInactive"
)

// Reasons of ReconcileSuccess.
const (
	// ReconcileSuccessReason means that every object is as the spec says.
	ReconcileSuccessReason = "ReconcileSuccess"
	// ReconcileFailedReason means that an object could not be written or a thing it needs is missing; the message says which.
	ReconcileFailedReason = "ReconcileFailed"
)

// Reasons of StatefulSetReady.
const (
	// StatefulSetReadyReason means that every Pod is available and of the newest revision.
	StatefulSetReadyReason = "StatefulSetReady"
	// StatefulSetNotReadyReason means that Pods are missing, not available or of an older revision.
	StatefulSetNotReadyReason = "StatefulSetNotReady"
	// StatefulSetNotFoundReason means that the StatefulSet does not exist yet.
	StatefulSetNotFoundReason = "StatefulSetNotFound"
)

// Reasons of SpecFullySupported.
const (
	// FullySupportedReason means that Torpor acts on every field of the spec.
	FullySupportedReason = "FullySupported"
	// FieldsIgnoredReason means that Torpor keeps some fields of the spec without acting on them; the message lists them.
	FieldsIgnoredReason = "FieldsIgnored"
)
