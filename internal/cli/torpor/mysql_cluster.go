// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func mysqlClusterKind() stoppableKind {
	return stoppableKind{
		gvk:         mocov1beta2.MySQLClusterKind(),
		names:       []string{"mysqlcluster", "mysqlclusters"},
		addToScheme: mocov1beta2.AddToScheme,
		newObject:   func() client.Object { return &mocov1beta2.MySQLCluster{} },
		newList:     func() client.ObjectList { return &mocov1beta2.MySQLClusterList{} },
		describe:    restoreStatus(describeMySQLCluster),
		parts:       []string{clusteringPart, reconciliationPart},
		stop: of(func(c *mocov1beta2.MySQLCluster, part string, now time.Time) {
			c.Annotations = moco.ChangeAnnotations(c.Annotations, part, true, now)
		}),
		start: of(func(c *mocov1beta2.MySQLCluster, part string, now time.Time) {
			c.Annotations = moco.ChangeAnnotations(c.Annotations, part, false, now)
		}),
		annotationsOf: func(part string) stoprecord.AnnotationSwitch {
			if part == clusteringPart {
				return mysqlswitches.ClusteringSwitch()
			}
			return mysqlswitches.ReconciliationSwitch()
		},
		plan: planMySQLCluster,
	}
}

func describeMySQLCluster(c *mocov1beta2.MySQLCluster) []stopRow {
	records := []stoprecord.Records{c.Status.ClusteringStops, c.Status.ReconciliationStops}
	switches := []stoprecord.AnnotationSwitch{mysqlswitches.ClusteringSwitch(), mysqlswitches.ReconciliationSwitch()}
	isAsked := []bool{c.ClusteringStopped(), c.ReconciliationStopped()}
	var rows []stopRow
	for i, part := range moco.DescribeParts(c) {
		r := newStopRow(mocov1beta2.MySQLClusterKind(), c, part.Name, isAsked[i] && !records[i].HasExpired(), records[i])
		r.conditions = c.Status.Conditions
		r.State, r.Message, r.Next, r.refusal = part.State, part.Message, part.Next, part.Refusal
		r.untilAnnotation = switches[i].UntilAnnotation(c.Annotations)
		if ignored := records[i].DescribeIgnored(r.untilAnnotation); r.Stopped && ignored != "" {
			r.Next = ignored
		}
		rows = append(rows, r)
	}
	rows = append(rows, describeInstances(c)...)
	return append(rows, describeServers(c)...)
}

// describeServers returns a row if a Slumber stops the servers or has stopped them before.
func describeServers(c *mocov1beta2.MySQLCluster) []stopRow {
	scheduled := stoprecord.ListScheduled(c.Status.ScheduledStops, c.Annotations)
	if len(scheduled) == 0 {
		return nil
	}
	r := newStopRow(mocov1beta2.MySQLClusterKind(), c, serversPart, c.Spec.Offline, nil).withScheduled(scheduled)
	r.conditions = c.Status.Conditions
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
	return []stopRow{r.withNext("spec.offline is true: set it to false")}
}

// describeInstances returns a row if clustering of single instances is stopped or was stopped before.
func describeInstances(c *mocov1beta2.MySQLCluster) []stopRow {
	stops, chosen := stoprecord.Records(c.Status.InstanceStops), c.Annotations[mocov1beta2.StoppedInstancesAnnotation]
	if chosen == "" && len(stops) == 0 {
		return nil
	}
	instances, isRead := mysqlswitches.ParseStoppedInstances(c)
	r := newStopRow(mocov1beta2.MySQLClusterKind(), c, "instances", len(instances) > 0 && !stops.HasExpired(), stops)
	r.conditions = c.Status.Conditions
	r.untilAnnotation = mysqlswitches.InstancesSwitch().UntilAnnotation(c.Annotations)
	r.State = "running"
	switch {
	case r.Stopped:
		r.State, r.Message = "stopped", "stopped instances: "+chosen
	case !isRead: // The list stops nothing, and the controller reports so.
		r.Message = mocov1beta2.StoppedInstancesAnnotation + " is ignored: expected a JSON list such as [1]"
	}
	return []stopRow{r.withNext(fmt.Sprintf("kubectl annotate -n %s mysqlcluster %s %s-", c.Namespace, c.Name, mocov1beta2.StoppedInstancesAnnotation))}
}
