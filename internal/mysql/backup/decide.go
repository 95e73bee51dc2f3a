// SPDX-License-Identifier: Apache-2.0

// Package backup decides how a MySQLCluster is backed up and restored: the Jobs that do it, what their objects in the
// bucket are called, which instance is dumped and which backup is restored. It is pure.
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

// Observed is what a decision about the backups of a cluster looks at.
type Observed struct {
	Cluster *mocov1beta2.MySQLCluster
	// Policy is the one that the cluster names; nil if it names none or if there is none of that name.
	Policy *mocov1beta2.BackupPolicy
	// CronJob and RestoreJob are what is there under the names of the cluster's; nil if there is none. A Job may be of a cluster
	// that had this name before.
	CronJob    *batchv1.CronJob
	RestoreJob *batchv1.Job
	// Shipper is the Deployment that copies binary logs; nil if there is none.
	Shipper *appsv1.Deployment
	// Image is Torpor's own.
	Image string
}

// Plan is what follows for the CronJob and for the Job, which do not depend on each other.
type Plan struct {
	// Rule names the decision, for the log.
	Rule    string
	CronJob CronJobPlan
	Shipper ShipperPlan
	Restore RestorePlan
}

// CronJobPlan is one of three: to apply the CronJob, to delete the one that is there, or to do nothing for a reason that is
// an error, or for none.
type CronJobPlan struct {
	Apply, Delete *batchv1.CronJob
	Err           error
}

// ShipperPlan is for the Deployment what CronJobPlan is for the CronJob.
type ShipperPlan struct {
	Apply, Delete *appsv1.Deployment
	Err           error
}

// RestorePlan creates the Job, or does nothing for a reason that is an error, or for none.
type RestorePlan struct {
	Create *batchv1.Job
	Err    error
}

// Rules of Decide that do nothing at all.
const (
	DeletedRule = "the cluster is being deleted"
	StoppedRule = "reconciliation is stopped"
)

// Decide says which Jobs a cluster should have. While reconciliation is stopped nothing is written, and a CronJob that
// exists goes on.
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
		return CronJobPlan{Err: fmt.Errorf("spec.backupPolicyName: expected a BackupPolicy %s in namespace %s, found none; make it, or remove the name",
			name, seen.Cluster.Namespace)}
	}
	cron, err := BuildCronJob(seen.Cluster, seen.Policy, seen.Image)
	return CronJobPlan{Apply: cron, Err: err}
}

func decideShipper(seen Observed) ShipperPlan {
	switch {
	case PolicyName(seen.Cluster) != "" && seen.Policy == nil:
		return ShipperPlan{} // The CronJob says what is missing.
	case PolicyName(seen.Cluster) == "" || seen.Policy.Spec.PointInTimeRecovery == nil:
		return ShipperPlan{Delete: seen.Shipper}
	}
	shipper, err := BuildShipper(seen.Cluster, seen.Policy, seen.Image)
	return ShipperPlan{Apply: shipper, Err: err}
}

func decideRestore(seen Observed) RestorePlan {
	// A Job cannot be changed. It is made once, and made again if it is deleted, which is how a failed restore is repeated.
	switch {
	case seen.Cluster.Spec.Restore == nil || seen.Cluster.Status.RestoredTime != nil:
		return RestorePlan{}
	case seen.RestoreJob != nil:
		return RestorePlan{Err: findJobInTheWay(seen.Cluster, seen.RestoreJob)}
	}
	job, err := BuildRestoreJob(seen.Cluster, seen.Image)
	return RestorePlan{Create: job, Err: err}
}

// findJobInTheWay returns an error for a Job that has the name of the cluster's and that nothing will delete.
func findJobInTheWay(cluster *mocov1beta2.MySQLCluster, job *batchv1.Job) error {
	owner := metav1.GetControllerOf(job)
	switch {
	case metav1.IsControlledBy(job, cluster):
		return nil
	case job.DeletionTimestamp != nil, owner != nil && owner.Kind == mocov1beta2.MySQLClusterKind().Kind:
		return nil // Its end is seen. A cluster that had this name before is gone, and what it owned is collected.
	}
	return fmt.Errorf("spec.restore: expected no Job %s of others, found one that this cluster has not made, so that nothing is restored; if nobody needs it, delete it: kubectl delete job -n %s %s",
		job.Name, job.Namespace, job.Name)
}

// PolicyName is the name of the BackupPolicy of a cluster; empty if it has none.
func PolicyName(cluster *mocov1beta2.MySQLCluster) string {
	if cluster.Spec.BackupPolicyName == nil {
		return ""
	}
	return *cluster.Spec.BackupPolicyName
}

// SourceCandidate is what is known of an instance that might be dumped.
type SourceCandidate struct {
	// Problem is why it did not answer; empty if it did.
	Problem string
	// Writable instances take writes from clients: the primary.
	Writable bool
	// Replicating is true while both threads of the replication run.
	Replicating bool
	// Lag is how far it is behind the primary.
	Lag time.Duration
	// Busy is true if its tables could not be locked for the moment of a snapshot without holding up its clients.
	Busy bool
	// LeadsCopy is true for the primary of a cluster that copies a server outside, and takes no writes.
	LeadsCopy bool
	// Errant is true if it has transactions that the primary does not have.
	Errant bool
	// HasNoPrimary is true if there was no primary to compare it with.
	HasNoPrimary bool
}

// ChooseSource returns the index of the instance to dump: of the replicas in sync the one that lags least, so that
// the primary is left alone; else the primary, with a warning.
func ChooseSource(instances []SourceCandidate, maxLag time.Duration) (chosen int, warnings []string, err error) {
	replica, primary := -1, -1
	var reasons []string
	for i, s := range instances {
		why := unsuitableReason(s, maxLag)
		isPrimary := s.Problem == "" && (s.Writable || s.LeadsCopy)
		switch {
		case isPrimary && primary >= 0:
			return 0, nil, fmt.Errorf("expected one writable instance, found %d and %d: nobody knows which data are right; make one of them read-only", primary, i)
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

// FindCopyPrimary returns the primary of a cluster that copies a server outside, where every instance is read-only: it alone follows a
// host that is none of the cluster's, and whoever else answers follows it or nobody. -1 means that there is none, or that nobody knows
// which. sources are the hosts that the instances follow; of one that does not answer it is empty.
func FindCopyPrimary(hosts, sources []string) int {
	primary := slices.IndexFunc(sources, func(source string) bool { return source != "" && !slices.Contains(hosts, source) })
	for i, source := range sources {
		if primary >= 0 && i != primary && source != "" && source != hosts[primary] {
			return -1
		}
	}
	return primary
}

func unsuitableReason(s SourceCandidate, maxLag time.Duration) string {
	switch {
	case s.Problem != "":
		return s.Problem
	case s.Busy:
		return "is kept busy by a transaction, a change of tables or other work of its machine"
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
