// SPDX-License-Identifier: Apache-2.0

// Package backup decides how a MySQLCluster is backed up and restored: the Jobs, the object keys in the bucket, the
// instance to dump and the backup to restore. It does no I/O. Package controller creates the Jobs, and package runner
// is the program that runs in their Pods.
package backup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// Observed is the input for a decision about the backups of a cluster.
type Observed struct {
	Cluster *mocov1beta2.MySQLCluster
	// Policy is the BackupPolicy that the cluster references. It is nil if there is no reference, or if the
	// BackupPolicy does not exist.
	Policy *mocov1beta2.BackupPolicy
	// CronJob and RestoreJob are the existing objects with the cluster's CronJobName and RestoreJobName. Each is nil if
	// it does not exist. The Job may belong to an earlier cluster with the same name.
	CronJob    *batchv1.CronJob
	RestoreJob *batchv1.Job
	// Shipper is the Deployment that ships binary logs to the bucket. It is nil if it does not exist.
	Shipper *appsv1.Deployment
	// Image is Torpor's own image.
	Image string
}

// Plan holds the actions for the CronJob, the shipper and the restore Job. They do not depend on each other.
type Plan struct {
	// Rule is the name of the decision, for the log.
	Rule    string
	CronJob CronJobPlan
	Shipper ShipperPlan
	Restore RestorePlan
}

// CronJobPlan contains at most one of these: the CronJob to apply, the CronJob to delete, or the reason why the wanted
// CronJob cannot be applied.
type CronJobPlan struct {
	Apply, Delete *batchv1.CronJob
	Err           error
}

// ShipperPlan is the counterpart of CronJobPlan for the Deployment.
type ShipperPlan struct {
	Apply, Delete *appsv1.Deployment
	Err           error
}

// RestorePlan contains the Job to create, or the reason why the wanted Job cannot be created.
type RestorePlan struct {
	Create *batchv1.Job
	Err    error
}

// Rules of Decide that change nothing.
const (
	DeletedRule = "the cluster is being deleted"
	StoppedRule = "reconciliation is stopped"
)

// Decide returns the changes to a cluster's CronJob, Deployment and restore Job. While reconciliation is stopped, it
// returns no changes, and an existing CronJob keeps creating Jobs.
func Decide(seen Observed) Plan {
	switch {
	case !seen.Cluster.DeletionTimestamp.IsZero():
		return Plan{Rule: DeletedRule}
	case seen.Cluster.ReconciliationStopped():
		return Plan{Rule: StoppedRule}
	}
	return Plan{Rule: "backups", CronJob: decideCronJob(seen), Shipper: decideShipper(seen), Restore: decideRestore(seen)}
}

func decideCronJob(seen Observed) CronJobPlan {
	name := PolicyName(seen.Cluster)
	switch {
	case name == "":
		return CronJobPlan{Delete: seen.CronJob}
	case seen.Policy == nil:
		return CronJobPlan{Err: fmt.Errorf("spec.backupPolicyName: expected a BackupPolicy %s in namespace %s, found none; create it, or remove the name",
			name, seen.Cluster.Namespace)}
	}
	cron, err := BuildCronJob(seen.Cluster, seen.Policy, seen.Image)
	return CronJobPlan{Apply: cron, Err: err}
}

func decideShipper(seen Observed) ShipperPlan {
	switch {
	case PolicyName(seen.Cluster) != "" && seen.Policy == nil:
		return ShipperPlan{} // The CronJob's plan reports the missing policy.
	case PolicyName(seen.Cluster) == "" || seen.Policy.Spec.ShippingInterval() == 0:
		return ShipperPlan{Delete: seen.Shipper}
	}
	shipper, err := BuildShipper(seen.Cluster, seen.Policy, seen.Image)
	return ShipperPlan{Apply: shipper, Err: err}
}

func decideRestore(seen Observed) RestorePlan {
	// A Job is immutable. It is created once, and recreated after it is deleted. Users retry a failed restore by
	// deleting the Job.
	switch {
	case seen.Cluster.Spec.Restore == nil || seen.Cluster.Status.RestoredTime != nil:
		return RestorePlan{}
	case seen.RestoreJob != nil:
		return RestorePlan{Err: findJobInTheWay(seen.Cluster, seen.RestoreJob)}
	}
	job, err := BuildRestoreJob(seen.Cluster, seen.Image)
	return RestorePlan{Create: job, Err: err}
}

// findJobInTheWay returns an error if the Job with the name of the cluster's restore Job has another owner and will not
// be deleted.
func findJobInTheWay(cluster *mocov1beta2.MySQLCluster, job *batchv1.Job) error {
	owner := metav1.GetControllerOf(job)
	switch {
	case metav1.IsControlledBy(job, cluster):
		return nil
	case job.DeletionTimestamp != nil, owner != nil && owner.Kind == mocov1beta2.MySQLClusterKind().Kind:
		// The deletion of the Job triggers a reconciliation. A Job of an earlier cluster is garbage-collected.
		return nil
	}
	return fmt.Errorf("spec.restore: expected this MySQLCluster to own Job %s, found another owner or none; nothing is restored; if the Job is not needed, delete it: kubectl delete job -n %s %s",
		job.Name, job.Namespace, job.Name)
}

// PolicyName returns the name of the BackupPolicy of a cluster, or "" if it has no policy.
func PolicyName(cluster *mocov1beta2.MySQLCluster) string {
	if cluster.Spec.BackupPolicyName == nil {
		return ""
	}
	return *cluster.Spec.BackupPolicyName
}

// SourceCandidate describes an instance that may be dumped.
type SourceCandidate struct {
	// Problem is the reason why the instance is unreachable. It is empty if the instance is reachable.
	Problem string
	// Writable is true if clients can write to the instance, as they can to the primary.
	Writable bool
	// Replicating is true if both replication threads run.
	Replicating bool
	// Lag is the replication lag.
	Lag time.Duration
	// Busy is true if a snapshot could not be taken without blocking clients for too long.
	Busy bool
	// LeadsCopy is true for the primary of a cluster that replicates from an external server, so clients cannot write
	// to it.
	LeadsCopy bool
	// Errant is true if the instance has transactions that the primary lacks.
	Errant bool
	// HasNoPrimary is true if there was no primary to compare the instance with.
	HasNoPrimary bool
}

// ChooseSource returns the index of the instance to dump: the replica with the lowest lag, to avoid load on the
// primary. If no replica is suitable, it returns the primary, and a warning if the cluster has replicas.
func ChooseSource(instances []SourceCandidate, maxLag time.Duration) (chosen int, warnings []string, err error) {
	replica, primary := -1, -1
	var reasons []string
	for i, s := range instances {
		why := unsuitableReason(s, maxLag)
		isPrimary := s.Problem == "" && (s.Writable || s.LeadsCopy)
		switch {
		case isPrimary && primary >= 0:
			return 0, nil, fmt.Errorf("expected one primary, found two: instances %d and %d; find out which instance has the right data, and make the other instance read-only", primary, i)
		case isPrimary:
			primary = i
			if s.Busy {
				reasons = append(reasons, fmt.Sprintf("instance %d %s", i, why))
			}
		case why != "":
			reasons = append(reasons, fmt.Sprintf("instance %d %s", i, why))
		case replica < 0 || s.Lag < instances[replica].Lag:
			replica = i
		}
	}
	told := strings.Join(reasons, ", ")
	switch {
	case replica >= 0:
		return replica, nil, nil
	case primary < 0 || instances[primary].Busy:
		return 0, nil, fmt.Errorf("expected a replica in sync or a primary, found none: %s", told)
	case told != "":
		warnings = []string{"the primary was dumped, because no replica was in sync: " + told}
	}
	return primary, warnings, nil
}

// FindCopyPrimary returns the index of the primary of a cluster that replicates from an external server, so all
// instances are read-only. The primary is the only instance that replicates from a host outside of the cluster. All
// other instances replicate from the primary or do not replicate. It returns -1 if no instance or more than one
// qualifies. sources holds the host that each instance replicates from, and an empty string for an unreachable
// instance.
func FindCopyPrimary(hosts, sources []string) int {
	primary := slices.IndexFunc(sources, func(source string) bool { return source != "" && !slices.Contains(hosts, source) })
	for i, source := range sources {
		if primary >= 0 && i != primary && source != "" && source != hosts[primary] {
			return -1
		}
	}
	return primary
}

// unsuitableReason returns why a replica cannot be dumped, as a predicate of the instance, or "" if it can be dumped.
func unsuitableReason(s SourceCandidate, maxLag time.Duration) string {
	switch {
	case s.Problem != "":
		return s.Problem
	case s.Busy:
		return "could not take a snapshot in time, because of a transaction, a DDL statement or other load on the machine of the instance"
	case !s.Replicating:
		return "does not replicate"
	case s.HasNoPrimary:
		return "cannot be compared with the primary, because none was found"
	case s.Errant:
		return "has transactions that the primary does not have"
	case maxLag > 0 && s.Lag > maxLag:
		return "lags behind"
	}
	return ""
}
