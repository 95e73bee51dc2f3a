// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// MySQLCluster is a MySQLCluster of which one part is to be stopped or started.
type MySQLCluster struct {
	*mocov1beta2.MySQLCluster
	// IsClustering reports that the part is clustering, and not reconciliation.
	IsClustering bool
	// Policy is its BackupPolicy; nil if it has none.
	Policy *mocov1beta2.BackupPolicy
	// StartCommand is the command that starts it again.
	StartCommand string
}

// refuseSeverity is the severity of the findings by which the manager refuses a start.
const refuseSeverity = "refuse"

// PlanMySQLCluster describes the effects of a stop or a start of one part, and the problems that it may meet.
func PlanMySQLCluster(c MySQLCluster, r PlanRequest) Plan {
	findings := judgeShared(c, r)
	if r.IsStart {
		findings = append(findings, c.judgeStart()...)
	} else {
		findings = append(findings, c.judgeHealth()...)
		findings = append(findings, c.judgeBackup(r)...)
	}
	return Plan{Effects: c.effects(r), Findings: sortFindings(findings)}
}

func (c MySQLCluster) effects(r PlanRequest) []string {
	switch {
	case r.IsStart && c.IsClustering:
		return []string{"The manager checks every server. It refuses a start that would lose transactions or cut off an instance", "The manager fails over, repairs and switches over again, and corrects manual changes"}
	case r.IsStart:
		return []string{"The StatefulSet, Services, Secrets and ConfigMaps are updated to the spec, which may restart instances one by one"}
	case c.IsClustering:
		return []string{"Operations in progress are brought to a safe point, within 15 seconds", "The servers keep serving; the manager does not fail over, repair or switch over", r.describeEnd(c.StartCommand)}
	default:
		return []string{"The objects of the cluster stay as they are, whatever the spec; servers keep serving, and failover goes on", r.describeEnd(c.StartCommand)}
	}
}

// judgeStart returns why the manager would refuse a start of clustering, by its last report.
func (c MySQLCluster) judgeStart() []Finding {
	if !c.IsClustering || c.Status.Pause == nil {
		return nil
	}
	var why []string
	for _, f := range c.Status.Pause.StartFindings {
		if f.Severity == refuseSeverity {
			why = append(why, f.Message+"; "+f.Remedy)
		}
	}
	if len(why) == 0 {
		return nil
	}
	return []Finding{newFinding(torporv1alpha1.StartRefusedFinding, len(why), why...)}
}

// judgeHealth reports a cluster that is not healthy: a stop leaves it so.
func (c MySQLCluster) judgeHealth() []Finding {
	healthy := meta.FindStatusCondition(c.Status.Conditions, mocov1beta2.HealthyCondition)
	if healthy == nil || healthy.Status != metav1.ConditionFalse || !c.IsClustering {
		return nil
	}
	return []Finding{newFinding(torporv1alpha1.NotHealthyFinding, 1, healthy.Message)}
}

// judgeBackup returns a backup that would be made during the stop, while a user may be working on the
// servers.
func (c MySQLCluster) judgeBackup(r PlanRequest) []Finding {
	if c.Policy == nil || c.Spec.Offline {
		return nil
	}
	stop := r.stop()
	end := stop.Until
	if end.IsZero() {
		end = stop.Since.Add(endlessStop)
	}
	if next := nextBackup(c.Policy.Spec, r.Now); next.IsZero() || next.After(end) {
		return nil
	}
	what := "that one is due by the BackupPolicy " + c.Policy.Name + ", which backs up the servers as they are then; stop the cluster after that"
	return []Finding{newFinding(torporv1alpha1.BackupDueFinding, 1, what)}
}

func nextBackup(policy mocov1beta2.BackupPolicySpec, now time.Time) time.Time {
	text := string(policy.Schedule)
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}
	}
	zone := time.UTC
	if policy.TimeZone != nil && !strings.Contains(text, "TZ=") {
		if found, err := time.LoadLocation(*policy.TimeZone); err == nil {
			zone = found
		}
	}
	return parsed.Next(now.In(zone))
}
