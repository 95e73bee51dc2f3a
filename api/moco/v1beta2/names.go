// SPDX-License-Identifier: Apache-2.0

package v1beta2

// Annotations of a MySQLCluster by which somebody stops something. Only the exact value "true" stops; why and until
// when is said by the annotations of torpor.dev.
const (
	// ClusteringStoppedAnnotation stops clustering when it is "true": no SQL is run that changes anything, no role is moved.
	ClusteringStoppedAnnotation = "moco.cybozu.com/clustering-stopped"
	// ReconciliationStoppedAnnotation stops reconciliation when it is "true": a changed spec reaches no other object.
	ReconciliationStoppedAnnotation = "moco.cybozu.com/reconciliation-stopped"
	// StoppedInstancesAnnotation stops clustering for single instances; its value is a JSON list of ordinals such as [0,2].
	StoppedInstancesAnnotation = "moco.cybozu.com/clustering-stopped-instances"
)

// Annotations of the Pods of a MySQLCluster.
const (
	// DemoteAnnotation asks for a switchover when it is "true" on the primary's Pod; it is removed when that is done.
	DemoteAnnotation = "moco.cybozu.com/demote"
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
	// MysqldContainer is the container that runs the MySQL server.
	MysqldContainer = "mysqld"
	// DataClaim is the volume claim that holds the data.
	DataClaim = "mysql-data"
)
