// SPDX-License-Identifier: Apache-2.0

package stopcheck

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
	// IsClustering says that clustering is meant, and not reconciliation.
	IsClustering bool
	// Policy is its BackupPolicy; nil if it has none.
	Policy *mocov1beta2.BackupPolicy
	// StartCommand starts it again.
	StartCommand string
}

// refuseSeverity is that of a finding of the manager by which it refuses a start.
const refuseSeverity = "refuse"

// PlanMySQLCluster says what a stop or a start of one part does, and what it may run into.
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
		return []string{"The manager looks at every server, and refuses a start by which transactions would be lost or an instance cut off", "Failover, repair and switchovers go on, and what was changed by hand is put right"}
	case r.IsStart:
		return []string{"The StatefulSet, Services, Secrets and ConfigMaps become as the spec says, which may restart instances one by one"}
	case c.IsClustering:
		return []string{"What is under way is brought to a safe point, for 15 seconds at most", "The servers serve on; nobody fails over, repairs or switches over", r.describeEnd(c.StartCommand)}
	default:
		return []string{"The objects of the cluster stay as they are, whatever the spec says; servers serve on, and failover goes on", r.describeEnd(c.StartCommand)}
	}
}

// judgeStart returns why the manager would refuse a start of clustering, as it was seen last.
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

// judgeHealth returns what is not as it should be: a stop leaves it so.
func (c MySQLCluster) judgeHealth() []Finding {
	healthy := meta.FindStatusCondition(c.Status.Conditions, mocov1beta2.HealthyCondition)
	if healthy == nil || healthy.Status != metav1.ConditionFalse || !c.IsClustering {
		return nil
	}
	return []Finding{newFinding(torporv1alpha1.NotHealthyFinding, 1, healthy.Message)}
}

// judgeBackup returns a backup that would be made during the stop, which goes on without whoever works on the servers by hand.
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
	what := "that one is due by the BackupPolicy " + c.Policy.Name + ", which is made all the same of whatever the servers have then; stop it after that"
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
