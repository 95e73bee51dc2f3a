// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// mysqlClusters is the kind MySQLCluster. An object is asleep when spec.offline or a Slumber has removed all its Pods.
// An object whose clustering or reconciliation is stopped is not asleep, because the servers keep running.
type mysqlClusters struct{}

// GVK implements Definition.
func (mysqlClusters) GVK() schema.GroupVersionKind { return mocov1beta2.MySQLClusterKind() }

// Names implements Definition.
func (mysqlClusters) Names() []string { return []string{"mysqlcluster", "mysqlclusters"} }

// AddToScheme implements Definition.
func (mysqlClusters) AddToScheme(known *runtime.Scheme) error { return mocov1beta2.AddToScheme(known) }

// New implements Definition.
func (mysqlClusters) New() Object { return &mocov1beta2.MySQLCluster{} }

// NewList implements Definition.
func (mysqlClusters) NewList() List { return &mocov1beta2.MySQLClusterList{} }

// Switch implements Definition.
func (mysqlClusters) Switch() *FieldSwitch { return nil }

// Notes implements Definition.
func (mysqlClusters) Notes() *Notes {
	return &Notes{Policy: "mysql", Path: "/note-databases", Switches: []NotedSwitch{
		{Annotations: mysqlswitches.ClusteringSwitch(), StoppedValue: mysqlswitches.StopValue},
		{Annotations: mysqlswitches.ReconciliationSwitch(), StoppedValue: mysqlswitches.StopValue},
		// A JSON list with at least one ordinal; any other value stops nothing.
		{Annotations: mysqlswitches.InstancesSwitch(), StoppedPattern: `^\s*\[\s*-?[0-9]+\s*(,\s*-?[0-9]+\s*)*\]\s*$`},
	}}
}

// StopWave implements Late. MySQLClusters are stopped after CFApps and Deployments, which may use them.
func (mysqlClusters) StopWave() int { return 1 }

// ListFinalizers implements Finalized.
func (k mysqlClusters) ListFinalizers() []Finalizer {
	return []Finalizer{{k.GVK(), mocov1beta2.Finalizer, otherwriter.MOCO()}}
}

// ReadState implements Definition.
func (mysqlClusters) ReadState(obj Object, now time.Time) State {
	c, isCluster := obj.(*mocov1beta2.MySQLCluster)
	if !isCluster {
		return State{}
	}
	c = restoreStatus(c)
	isScheduled := stoprecord.FindScheduled(c.Status.ScheduledStops, c.Annotations, now) != nil
	_, hasPrimary := c.Status.Primary()
	s := State{
		IsStoppedWithoutSlumbers: c.Spec.Offline, ScheduledStops: stoprecord.ListScheduled(c.Status.ScheduledStops, c.Annotations),
		IsAsleep: c.Status.OfflineSince != nil,
	}
	available := meta.FindStatusCondition(c.Status.Conditions, mocov1beta2.AvailableCondition)
	s.IsAwake = !s.IsAsleep && available != nil && available.Status == metav1.ConditionTrue && !isScheduled
	if available != nil && !s.IsAsleep && !s.IsAwake {
		s.Message = available.Reason
	}
	isReconciliationStopped := c.ReconciliationStopped() && !stoprecord.Records(c.Status.ReconciliationStops).HasReachedEnd(now)
	isClusteringStopped := c.ClusteringStopped() && !stoprecord.Records(c.Status.ClusteringStops).HasReachedEnd(now)
	switch {
	case !c.DeletionTimestamp.IsZero():
	case (isClusteringStopped || isReconciliationStopped) && !isScheduled:
		// Clustering or reconciliation is stopped, so a user may be changing the servers or their objects by hand. A
		// Slumber does not stop this cluster, and no wave waits for it.
	default:
		s.IsStoppable = hasPrimary || isScheduled // A new cluster without a primary has no data, and is not stopped.
	}
	if isReconciliationStopped {
		// The cluster becomes awake only when reconciliation is started again.
		s.IsStoppedWithoutSlumbers, s.Message = true, mocov1beta2.ReconciliationInactiveReason
	}
	return s
}

// Parts implements Definition. The parts servers and instances are only shown: spec.offline or a Slumber stops the
// servers, and an annotation stops the clustering of instances.
func (k mysqlClusters) Parts() []Part {
	var parts []Part
	for _, p := range mysqlswitches.ListParts() {
		change := func(isStop bool) func(Object, time.Time) {
			return func(obj Object, now time.Time) {
				obj.SetAnnotations(mysqlswitches.PartRequest{Part: p, IsStop: isStop}.ChangeAnnotations(obj.GetAnnotations(), now).Annotations)
			}
		}
		parts = append(parts, Part{
			Name: p.PartName, Controllers: p.Controllers, Annotations: p.AnnotationSwitch, Stop: change(true), Start: change(false),
		})
	}
	return append(parts, k.serversPart(), k.instancesPart())
}

// DescribeWholeStop implements PartlyStopped.
func (mysqlClusters) DescribeWholeStop() string {
	return "kubectl torpor stops parts of a MySQLCluster with --part; spec.offline or a Slumber stops its servers"
}

func (mysqlClusters) serversPart() Part { return Part{Name: "servers", Controllers: "provisioning"} }

func (mysqlClusters) instancesPart() Part {
	return Part{Name: "instances", Controllers: "clustering", Annotations: mysqlswitches.InstancesSwitch()}
}

// DescribeRows implements Definition.
func (k mysqlClusters) DescribeRows(obj Object) []Row {
	statusannotation.RestoreStatus(obj)
	c, _ := obj.(*mocov1beta2.MySQLCluster)
	clustering, reconciliation := mysqlswitches.DescribeParts(c)
	rows := []Row{
		k.describePart(c, clustering, c.ClusteringStopped(), c.Status.ClusteringStops),
		k.describePart(c, reconciliation, c.ReconciliationStopped(), c.Status.ReconciliationStops),
	}
	rows = append(rows, k.describeInstances(c)...)
	return append(rows, k.describeServers(c)...)
}

func (k mysqlClusters) describePart(c *mocov1beta2.MySQLCluster, part mysqlswitches.PartState, isAsked bool, records stoprecord.Records) Row {
	r := newRow(k, c, Part{Name: part.PartName, Controllers: part.Controllers}, isAsked && !records.HasExpired(), records)
	r.Conditions = c.Status.Conditions
	r.State, r.Message, r.Next, r.Refusal = part.State, part.Message, part.Next, part.Refusal
	r.UntilAnnotation = part.UntilAnnotation(c.Annotations)
	if ignored := records.DescribeIgnored(r.UntilAnnotation); r.Stopped && ignored != "" {
		r.Next = ignored
	}
	return r
}

// describeServers returns a row if a Slumber stops the servers or has ever stopped them.
func (k mysqlClusters) describeServers(c *mocov1beta2.MySQLCluster) []Row {
	scheduled := stoprecord.ListScheduled(c.Status.ScheduledStops, c.Annotations)
	if len(scheduled) == 0 {
		return nil
	}
	r := newRow(k, c, k.serversPart(), c.Spec.Offline, nil).withScheduled(scheduled)
	r.Conditions = c.Status.Conditions
	switch isDown := c.Status.OfflineSince != nil; {
	case r.Stopped && isDown:
		r.State = "stopped"
	case r.Stopped:
		r.State = "stopping"
	case isDown:
		r.State = "starting"
	default:
		r.State = "running"
	}
	return []Row{r.withNext("spec.offline is true: set it to false")}
}

// describeInstances returns a row if clustering of single instances is stopped or was ever stopped.
func (k mysqlClusters) describeInstances(c *mocov1beta2.MySQLCluster) []Row {
	stops, chosen := stoprecord.Records(c.Status.InstanceStops), c.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	if chosen == "" && len(stops) == 0 {
		return nil
	}
	instances, isRead := mysqlswitches.ParseStoppedInstances(c)
	r := newRow(k, c, k.instancesPart(), len(instances) > 0 && !stops.HasExpired(), stops)
	r.Conditions = c.Status.Conditions
	r.UntilAnnotation = mysqlswitches.InstancesSwitch().UntilAnnotation(c.Annotations)
	r.State = "running"
	switch {
	case r.Stopped:
		r.State, r.Message = "stopped", "stopped instances: "+chosen
	case !isRead: // The controller ignores the invalid list, and reports this.
		r.Message = mocov1beta2.StoppedInstancesAnnotation + " is ignored: expected a JSON list such as [1]"
	}
	return []Row{r.withNext(fmt.Sprintf("kubectl annotate -n %s mysqlcluster %s %s-", c.Namespace, c.Name, mocov1beta2.StoppedInstancesAnnotation))}
}

// ListRelated implements Planner.
func (mysqlClusters) ListRelated(obj Object) []Related {
	c, _ := obj.(*mocov1beta2.MySQLCluster)
	if name := c.Spec.BackupPolicyName; name != nil && *name != "" {
		return []Related{{Object: &mocov1beta2.BackupPolicy{}, Name: *name, IsOptional: true}}
	}
	return nil
}

// Plan implements Planner.
func (mysqlClusters) Plan(s PlanSubject, r preflight.PlanRequest) preflight.Plan {
	found, _ := s.Object.(*mocov1beta2.MySQLCluster)
	c := plannedCluster{MySQLCluster: restoreStatus(found), isClustering: s.Part == mysqlswitches.ClusteringPart().PartName, startCommand: s.StartCommand}
	for _, related := range s.Related {
		c.policy, _ = related.(*mocov1beta2.BackupPolicy)
	}
	findings := preflight.JudgeShared(c, r)
	if r.IsStart {
		findings = append(findings, c.judgeStart()...)
	} else {
		findings = append(findings, c.judgeHealth()...)
		findings = append(findings, c.judgeBackup(r)...)
	}
	return preflight.Plan{Effects: c.effects(r), Findings: preflight.Join(findings)}
}

// plannedCluster is a MySQLCluster with one part that is to be stopped or started.
type plannedCluster struct {
	*mocov1beta2.MySQLCluster
	// isClustering is true if the part is clustering, and not reconciliation.
	isClustering bool
	// policy is the BackupPolicy of the cluster; nil if it has none.
	policy *mocov1beta2.BackupPolicy
	// startCommand is the command that starts the part again.
	startCommand string
}

func (c plannedCluster) effects(r preflight.PlanRequest) []string {
	switch {
	case r.IsStart && c.isClustering:
		return []string{"The manager checks every server. It refuses a start that would lose transactions or cut off an instance", "The manager fails over, repairs and switches over again, and corrects manual changes"}
	case r.IsStart:
		return []string{"The StatefulSet, Services, Secrets and ConfigMaps are updated to the spec, which may restart instances one by one"}
	case c.isClustering:
		return []string{"Operations in progress are brought to a safe point, within 15 seconds", "The servers keep serving; the manager does not fail over, repair or switch over", r.DescribeEnd(c.startCommand)}
	default:
		return []string{"Changes to the spec are not applied to the StatefulSet, Services, Secrets and ConfigMaps; servers keep serving, and failover continues", r.DescribeEnd(c.startCommand)}
	}
}

// judgeStart returns a finding if kubectl moco would refuse to start clustering without --force, according to the last
// report in the status. The manager refuses in most of these cases. It starts clustering if nothing is lost, for example
// if only the primary does not answer.
func (c plannedCluster) judgeStart() []preflight.Finding {
	if !c.isClustering || c.Status.Pause == nil {
		return nil
	}
	var why []string
	for _, f := range c.Status.Pause.StartFindings {
		if mysqlswitches.IsRefusal(f) {
			why = append(why, f.Message+"; "+f.Remedy)
		}
	}
	if len(why) == 0 {
		return nil
	}
	return []preflight.Finding{preflight.NewFinding(torporv1alpha1.StartRefusedFinding, len(why), why...)}
}

// judgeHealth returns a finding if the cluster is not healthy and clustering is to be stopped, because the cluster is
// then not repaired.
func (c plannedCluster) judgeHealth() []preflight.Finding {
	healthy := meta.FindStatusCondition(c.Status.Conditions, mocov1beta2.HealthyCondition)
	if healthy == nil || healthy.Status != metav1.ConditionFalse || !c.isClustering {
		return nil
	}
	return []preflight.Finding{preflight.NewFinding(torporv1alpha1.NotHealthyFinding, 1, healthy.Message)}
}

// judgeBackup returns a finding if a backup is scheduled during the stop, while a user may be working on the
// servers.
func (c plannedCluster) judgeBackup(r preflight.PlanRequest) []preflight.Finding {
	if c.policy == nil || c.Spec.Offline {
		return nil
	}
	stop := r.Stop()
	end := stop.Until
	if end.IsZero() {
		end = stop.Since.Add(preflight.EndlessStop)
	}
	if next := nextBackup(c.policy.Spec, r.Now); next.IsZero() || next.After(end) {
		return nil
	}
	what := "that the BackupPolicy " + c.policy.Name + " schedules a backup, which needs the running servers; stop the cluster after the backup"
	return []preflight.Finding{preflight.NewFinding(torporv1alpha1.BackupDueFinding, 1, what)}
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
