// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/actuator"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// planFixture is an object on the hub and, for a ClusterDeployment, the objects of its cluster.
type planFixture struct {
	// args follow kubectl torpor plan; NAME is replaced by the name of the object.
	args string
	// hub contains the object and its related objects, and cluster the objects that the survey reads.
	hub, cluster string
	// certificate is the remaining lifetime of the API server's certificate; zero means a month.
	certificate time.Duration
	// isUnchecked is true if no survey has been made, and unread is the kind whose list fails.
	isUnchecked bool
	unread      string
	// machines are the machines of the cluster.
	machines  []actuator.Machine
	isDeleted bool
	// controllers are the controllers of the active manager, and namespaces the only namespaces that it watches. If
	// controllers is empty, no manager holds the Lease.
	controllers, namespaces string
}

const (
	fixtureNamespace = "plan-fixtures"
	fixtureCluster   = `
apiVersion: hive.openshift.io/v1
kind: ClusterDeployment
metadata: {name: NAME}
spec: {clusterName: x, baseDomain: example.com, installed: true, platform: {aws: {region: eu-1, credentialsSecretRef: {name: cloud}}}}
status: {powerState: Running}
`
	fixtureAsleep = `
apiVersion: hive.openshift.io/v1
kind: ClusterDeployment
metadata: {name: NAME}
spec: {clusterName: x, baseDomain: example.com, installed: true, powerState: Hibernating, platform: {aws: {region: eu-1, credentialsSecretRef: {name: cloud}}}}
status:
  powerState: Hibernating
  stops: [{since: "2026-01-02T00:00:00Z", by: alice@example.com, requested: true}]
`
	fixtureMySQL = `
apiVersion: moco.cybozu.com/v1beta2
kind: MySQLCluster
metadata: {name: NAME}
spec:
  replicas: 3
  podTemplate: {spec: {containers: [{name: mysqld, image: "mysql:8.4"}]}}
  volumeClaimTemplates: [{metadata: {name: mysql-data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`
	fixtureApp = `
apiVersion: korifi.cloudfoundry.org/v1alpha1
kind: CFApp
metadata: {name: NAME}
spec: {displayName: NAME, desiredState: STARTED, lifecycle: {type: docker, data: {}}, currentDropletRef: {name: build}}
status: {instances: {desired: 2, ready: 2, draining: 0}}
`
	fixtureDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec: {replicas: 3, selector: {matchLabels: {app: NAME}}, template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: a, image: example.com/a}]}}}
`
	fixtureAutoscaler = `---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}}
`
	fixtureCronJob = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: NAME}
spec: {schedule: "@daily", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: example.com/a}]}}}}}
`
	// healthyCluster is part of every cluster: old namespaces, and three nodes of the control plane.
	healthyCluster = `
{kind: Namespace, metadata: {name: kube-system, creationTimestamp: "2020-01-01T00:00:00Z", labels: {kubernetes.io/metadata.name: kube-system}}}
---
{kind: Namespace, metadata: {name: kube-node-lease, labels: {kubernetes.io/metadata.name: kube-node-lease}}}
---
{kind: Namespace, metadata: {name: policy, labels: {kubernetes.io/metadata.name: policy}}}
---
{kind: Node, metadata: {name: master-0}}
---
{kind: Node, metadata: {name: master-1}}
`
	fixtureClusterAutoscaler = "{apiVersion: autoscaling.openshift.io/v1, kind: ClusterAutoscaler, metadata: {name: default}}\n"
	fixtureMachineAutoscaler = "{apiVersion: autoscaling.openshift.io/v1beta1, kind: MachineAutoscaler, metadata: {namespace: machines, name: worker-a}, spec: {minReplicas: 1, maxReplicas: 12}}\n"
	thirdMaster              = "{kind: Node, metadata: {name: master-2}}"
	webhookKind              = "{kind: ValidatingWebhookConfiguration, metadata: {name: guard}, webhooks: [{failurePolicy: %s, clientConfig: %s, rules: [{operations: [CREATE, UPDATE], apiGroups: ['*'], resources: [%s]}], namespaceSelector: %s}]}"
	inCluster                = "{service: {namespace: policy, name: guard}}"
)

func webhookOf(policy, where, resources, selector string) string {
	return fmt.Sprintf(webhookKind, policy, where, resources, selector)
}

func conditionOf(version, kind, condition string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: version}, status: {conditions: [{type: %s, status: 'True'}]}}", version, kind, condition)
}

func healthCheckOf(version, annotations string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: MachineHealthCheck, metadata: {namespace: machines, name: workers, annotations: %s}, spec: {maxUnhealthy: 40%%}}", version, annotations)
}

func cronJobOf(schedule, more string) string {
	return fmt.Sprintf("{kind: CronJob, metadata: {namespace: shop, name: often}, spec: {schedule: %q%s}}", schedule, more)
}

// faults returns the fixtures in which the plan must find a problem, keyed by the code of the finding.
func faults() map[string]map[string]planFixture {
	const stop = "clusterdeployment/NAME"
	mysql, app := "mysqlcluster/NAME --part clustering", "cfapp/NAME"
	scheduled := "\n  scheduledStops: [{slumber: nights, stops: [{since: \"2026-01-02T00:00:00Z\", requested: true}]}]\n"
	running := strings.Replace(fixtureCluster, "status: {powerState: Running}", "status:\n  powerState: Running", 1)
	backup := strings.Replace(fixtureMySQL, "  replicas: 3", "  replicas: 3\n  backupPolicyName: NAME", 1) +
		"---\napiVersion: moco.cybozu.com/v1beta2\nkind: BackupPolicy\nmetadata: {name: NAME}\nspec: {schedule: \"*/10 * * * *\", jobConfig: {serviceAccountName: a, bucketConfig: {bucketName: b}, workVolume: {emptyDir: {}}}}\n"
	deployment := fixtureApp + "---\napiVersion: torpor.dev/v1alpha1\nkind: CFDeployment\nmetadata: {name: NAME}\nspec: {appRef: {name: NAME}}\nstatus: {value: ACTIVE, reason: DEPLOYING}\n"
	return map[string]map[string]planFixture{
		torporv1alpha1.WebhookBlocksWakeUpFinding: {
			"a webhook for system Pods: WebhookBlocksWakeUp":                           {args: "stop " + stop, hub: fixtureCluster, cluster: webhookOf("Fail", inCluster, "pods", "{}")},
			"a webhook for the leases of nodes: WebhookBlocksWakeUp":                   {args: "hibernate NAME", hub: fixtureCluster, cluster: webhookOf("Fail", inCluster, "leases", "{}")},
			"a webhook for Pods that runs in the resumed cluster: WebhookBlocksWakeUp": {args: "resume NAME", hub: fixtureAsleep, cluster: webhookOf("Fail", inCluster, "pods", "{matchLabels: {kubernetes.io/metadata.name: policy}}")},
			"a webhook for the approval of certificate requests: WebhookBlocksWakeUp":  {args: stop, hub: fixtureCluster, cluster: webhookOf("Fail", inCluster, "certificatesigningrequests/approval", "{}")},
			"a webhook for all resources, including nodes: WebhookBlocksWakeUp":        {args: stop, hub: fixtureCluster, cluster: webhookOf("Fail", inCluster, "'*/*'", "{matchLabels: {team: a}}")},
		},
		torporv1alpha1.ClusterUpgradingFinding: {
			"an OpenShift cluster that is being upgraded: ClusterUpgrading": {args: stop, hub: fixtureCluster, cluster: conditionOf("config.openshift.io/v1", "ClusterVersion", "Progressing")},
			"a MachineConfigPool that is being updated: ClusterUpgrading":   {args: stop, hub: fixtureCluster, cluster: conditionOf("machineconfiguration.openshift.io/v1", "MachineConfigPool", "Updating")},
		},
		torporv1alpha1.KarpenterReplacesNodesFinding: {
			"a NodeClaim of Karpenter: KarpenterReplacesNodes": {args: stop, hub: fixtureCluster, cluster: "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: default-x7k2p}}"},
		},
		torporv1alpha1.CapacityReservationMissingFinding: {
			"a running machine without its reservation: CapacityReservationMissing": {args: stop, hub: fixtureCluster, machines: []actuator.Machine{{ID: "i-1", State: actuator.Running, MissingReservation: "cr-1"}}},
		},
		torporv1alpha1.QuotaExceededFinding: {
			"a quota whose use exceeds its limit: QuotaExceeded": {args: stop, hub: fixtureCluster, machines: []actuator.Machine{{ID: "i-1", State: actuator.Running, ExceededQuotas: []string{"europe-west3/N2_CPUS"}}}},
		},
		torporv1alpha1.HealthCheckReplacesMachinesFinding: {
			"a MachineHealthCheck of OpenShift: HealthCheckReplacesMachines":           {args: stop, hub: fixtureCluster, cluster: healthCheckOf("machine.openshift.io/v1beta1", "{}")},
			"a MachineHealthCheck of Cluster API: HealthCheckReplacesMachines":         {args: stop, hub: fixtureCluster, cluster: healthCheckOf("cluster.x-k8s.io/v1beta1", "{}")},
			"a MachineHealthCheck of Cluster API v1beta2: HealthCheckReplacesMachines": {args: stop, hub: fixtureCluster, cluster: healthCheckOf("cluster.x-k8s.io/v1beta2", "{}")},
		},
		torporv1alpha1.AutoscalerAddsMachinesFinding: {
			"a MachineAutoscaler and a ClusterAutoscaler: AutoscalerAddsMachines": {args: stop, hub: fixtureCluster, cluster: fixtureClusterAutoscaler + "---\n" + fixtureMachineAutoscaler},
			"a NodePool of Karpenter: AutoscalerAddsMachines":                     {args: stop, hub: fixtureCluster, cluster: "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}}"},
		},
		torporv1alpha1.EvictionForbiddenFinding: {
			"a PodDisruptionBudget that allows no disruption: EvictionForbidden": {args: stop, hub: fixtureCluster, cluster: "{kind: PodDisruptionBudget, metadata: {namespace: shop, name: b}, status: {expectedPods: 1, disruptionsAllowed: 0}}"},
		},
		torporv1alpha1.CronJobsMissStartsFinding: {
			"a stop for a night with a CronJob for every minute: CronJobsMissStarts": {args: stop + " --until 10h", hub: fixtureCluster, cluster: cronJobOf("* * * * *", "")},
			"a stop of a CronJob for every minute: CronJobsMissStarts":               {args: "cronjob/NAME --until 10h", hub: strings.Replace(fixtureCronJob, "@daily", "* * * * *", 1)},
			"a stop for a week with an hourly CronJob: CronJobsMissStarts":           {args: stop + " --until 168h", hub: fixtureCluster, cluster: cronJobOf("@hourly", "")},
		},
		torporv1alpha1.VolumesLocalFinding: {
			"a bound volume on the disk of a machine: VolumesLocal": {args: stop, hub: fixtureCluster, cluster: "{kind: PersistentVolume, metadata: {name: pv}, spec: {local: {path: /d}, claimRef: {namespace: shop, name: data}}, status: {phase: Bound}}"},
		},
		torporv1alpha1.VolumesNotDetachableFinding: {
			"a volume that could not be detached: VolumesNotDetachable": {args: stop, hub: fixtureCluster, cluster: "{kind: VolumeAttachment, metadata: {name: csi-1}, status: {detachError: {message: refused}}}"},
		},
		torporv1alpha1.StopOutlastsCertificatesFinding: {
			"a stop that ends after the certificates have expired: StopOutlastsCertificates": {args: stop + " --until 20h", hub: fixtureCluster, certificate: 10 * time.Hour},
			"a resume after the certificates have expired: StopOutlastsCertificates":         {args: "start " + stop, hub: fixtureAsleep, certificate: -time.Hour},
		},
		torporv1alpha1.WakeByNearFinding: {
			"certificates that expire the day after tomorrow: WakeByNear": {args: stop, hub: fixtureCluster, certificate: 48 * time.Hour},
		},
		torporv1alpha1.ClusterTooYoungFinding: {
			"an OpenShift cluster that was installed an hour ago: ClusterTooYoung": {args: stop, hub: fixtureCluster, cluster: "{kind: Namespace, metadata: {name: openshift-cluster-version}}\n---\n{kind: Namespace, metadata: {name: kube-system, creationTimestamp: HOURAGO, labels: {}}}"},
		},
		torporv1alpha1.EtcdQuorumSmallFinding: {
			"a control plane of two nodes: EtcdQuorumSmall": {args: stop, hub: fixtureCluster, cluster: "{kind: None}"},
		},
		torporv1alpha1.FinalizersPendingFinding: {
			"a namespace that waits for its finalizers: FinalizersPending": {args: stop, hub: fixtureCluster, cluster: `{kind: Namespace, metadata: {name: old, deletionTimestamp: "2026-01-01T00:00:00Z"}}`},
		},
		torporv1alpha1.NoControllerFinding: {
			"a Deployment whose manager lacks the feature workloads: NoController": {args: "deployment/NAME", hub: fixtureDeployment, controllers: "hibernation,sync"},
			"a cluster whose controller does not run: NoController":                {args: stop, hub: fixtureCluster, controllers: "workloads"},
			"the resume of a cluster whose controller does not run: NoController":  {args: "resume NAME", hub: fixtureAsleep, controllers: "workloads"},
			"a MySQLCluster whose provisioning does not run: NoController":         {args: "mysqlcluster/NAME --part reconciliation", hub: fixtureMySQL, controllers: "clustering"},
			"an app whose controllers do not run: NoController":                    {args: app, hub: fixtureApp, controllers: "hibernation"},
			"a cluster in an unwatched namespace: NoController":                    {args: stop, hub: fixtureCluster, controllers: "hibernation", namespaces: "team-a,team-b"},
		},
		torporv1alpha1.HibernationUnsupportedFinding: {
			"a cluster whose version is too old: HibernationUnsupported":       {args: stop, hub: running + "\n  conditions: [{type: Hibernating, status: \"False\", reason: Unsupported, message: too old, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]\n"},
			"a cluster that is not installed: HibernationUnsupported":          {args: stop, hub: strings.Replace(fixtureCluster, "installed: true", "installed: false", 1)},
			"a cluster whose platform has no actuator: HibernationUnsupported": {args: stop, hub: running + "\n  conditions: [{type: HibernationPossible, status: \"False\", reason: HibernationUnsupported, message: no actuator, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]\n"},
			"a cluster with machines of a group: HibernationUnsupported":       {args: stop, hub: running + "\n  conditions: [{type: HibernationPossible, status: \"False\", reason: HibernationUnsupported, message: found machines of the group a, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]\n"},
			"a cluster without an infraID: HibernationUnsupported":             {args: stop, hub: running + "\n  conditions: [{type: Hibernating, status: Unknown, reason: InvalidSpec, message: no infraID, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]\n"},
		},
		torporv1alpha1.PausedFinding: {
			"a cluster with management of its machines disabled: Paused": {args: stop, hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, annotations: {hive.openshift.io/infra-disabled: 'true'}}", 1)},
			"a cluster paused by an annotation: Paused":                  {args: stop, hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, annotations: {hive.openshift.io/powerstate-pause: 'true'}}", 1)},
		},
		torporv1alpha1.NotCheckedFinding: {
			"a cluster without a survey: NotChecked":              {args: stop, hub: fixtureCluster, isUnchecked: true},
			"a list request that the cluster rejects: NotChecked": {args: stop, hub: fixtureCluster, unread: "CronJobs"},
		},
		torporv1alpha1.StopRefusedFinding: {
			"a Deployment that another object controls: StopRefused":             {args: "deployment/NAME", hub: strings.Replace(fixtureDeployment, "{name: NAME}", "{name: NAME, ownerReferences: [{apiVersion: example.com/v1, kind: Shop, name: shop, uid: 1-2, controller: true}]}", 1)},
			"a Deployment with an autoscaler that scales from zero: StopRefused": {args: "deployment/NAME", hub: fixtureDeployment + strings.Replace(fixtureAutoscaler, "{name: NAME}", "{name: NAME, ownerReferences: [{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: NAME, uid: 1-2, controller: true}]}", 1)},
		},
		torporv1alpha1.UntilInvalidFinding: {
			"a malformed end in torpor.dev/until: UntilInvalid": {args: stop, hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, annotations: {torpor.dev/until: tomorrow}}", 1)},
			"a past end of an earlier stop: UntilInvalid":       {args: app, hub: strings.Replace(fixtureApp, "{name: NAME}", "{name: NAME, annotations: {torpor.dev/until: '2020-01-01T00:00:00Z'}}", 1)},
			"a malformed end of a current stop: UntilInvalid":   {args: stop, hub: strings.Replace(fixtureAsleep, "requested: true", "requested: true, requestedUntil: tomorrow", 1)},
		},
		torporv1alpha1.SlumberGoesOnFinding: {
			"a Slumber that stops the cluster beyond the planned end: SlumberGoesOn": {args: stop + " --until 1h", hub: running + scheduled},
		},
		torporv1alpha1.StoppedBySlumberFinding: {
			"the start of a cluster that a Slumber stops: StoppedBySlumber": {args: "start " + stop, hub: running + scheduled},
			"the start of an app that a Slumber stops: StoppedBySlumber":    {args: "start " + app, hub: strings.Replace(fixtureApp, "status: {", "status: {scheduledStops: [{slumber: nights, stops: [{since: \"2026-01-02T00:00:00Z\", requested: true}]}], ", 1)},
		},
		torporv1alpha1.BeingDeletedFinding: {
			"a cluster that is being deleted: BeingDeleted": {args: stop, hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, finalizers: [example.com/keep]}", 1), isDeleted: true},
		},
		torporv1alpha1.BackupDueFinding: {
			"a backup due in ten minutes: BackupDue": {args: mysql + " --until 1h", hub: backup},
		},
		torporv1alpha1.NotHealthyFinding: {
			"a replica that does not follow: NotHealthy":        {args: mysql, hub: fixtureMySQL + "status: {conditions: [{type: Healthy, status: \"False\", reason: Degraded, message: instance 2 does not follow, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]}\n"},
			"an app whose instances fit on no node: NotHealthy": {args: app, hub: strings.Replace(fixtureApp, "draining: 0}", "draining: 0}, conditions: [{type: Ready, status: \"False\", reason: Blocked, message: no node has room, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]", 1)},
		},
		torporv1alpha1.StartRefusedFinding: {
			"a start that would lose transactions: StartRefused": {args: "start " + mysql, hub: fixtureMySQL + "status: {pause: {startFindings: [{severity: refuse, message: instance 1 has transactions of its own, remedy: clone it}]}}\n"},
			"an app that was never pushed: StartRefused":         {args: "start " + app, hub: strings.Replace(strings.Replace(fixtureApp, ", currentDropletRef: {name: build}", "", 1), "STARTED", "STOPPED", 1)},
		},
		torporv1alpha1.DeploymentUnderwayFinding: {
			"an app with a deployment in progress: DeploymentUnderway": {args: app, hub: deployment},
		},
	}
}

// cleanFixtures returns fixtures in which the plan must find no problem, each similar to a fault.
func cleanFixtures() map[string]planFixture {
	const stop = "clusterdeployment/NAME"
	mysql, app := "mysqlcluster/NAME --part clustering", "cfapp/NAME"
	notTheSystem := "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease, policy]}]}"
	running := strings.Replace(fixtureCluster, "status: {powerState: Running}", "status:\n  powerState: Running", 1)
	scheduled := "\n  scheduledStops: [{slumber: nights, stops: [{since: \"2026-01-02T00:00:00Z\", requested: true}], expiresAt: \"2026-01-03T00:00:00Z\"}]\n"
	weekly := strings.Replace(fixtureMySQL, "  replicas: 3", "  replicas: 3\n  backupPolicyName: NAME", 1) +
		"---\napiVersion: moco.cybozu.com/v1beta2\nkind: BackupPolicy\nmetadata: {name: NAME}\nspec: {schedule: \"0 0 29 2 *\", jobConfig: {serviceAccountName: a, bucketConfig: {bucketName: b}, workVolume: {emptyDir: {}}}}\n"
	finished := fixtureApp + "---\napiVersion: torpor.dev/v1alpha1\nkind: CFDeployment\nmetadata: {name: NAME}\nspec: {appRef: {name: NAME}}\nstatus: {value: FINALIZED, reason: DEPLOYED}\n"
	return map[string]planFixture{
		"a healthy cluster: no finding":                                             {args: stop, hub: fixtureCluster},
		"a cluster that a manager acts on: no finding":                              {args: stop, hub: fixtureCluster, controllers: "hibernation"},
		"a cluster in a watched namespace: no finding":                              {args: stop, hub: fixtureCluster, controllers: "hibernation", namespaces: "team-a," + fixtureNamespace},
		"a MySQLCluster that clustering acts on: no finding":                        {args: mysql, hub: fixtureMySQL, controllers: "clustering"},
		"a stop that ends before the certificates expire: no finding":               {args: "hibernate NAME --until 60h", hub: fixtureCluster},
		"the resume of a hibernating cluster: no finding":                           {args: "resume NAME", hub: fixtureAsleep},
		"a webhook with failurePolicy Ignore: no finding":                           {args: stop, hub: fixtureCluster, cluster: webhookOf("Ignore", inCluster, "pods", "{}")},
		"a webhook that excludes the system's namespaces: no finding":               {args: stop, hub: fixtureCluster, cluster: webhookOf("Fail", inCluster, "pods, leases", notTheSystem)},
		"a webhook outside the cluster: no finding":                                 {args: stop, hub: fixtureCluster, cluster: webhookOf("Fail", "{url: 'https://guard.example.com'}", "pods", "{}")},
		"a webhook for Deployments: no finding":                                     {args: stop, hub: fixtureCluster, cluster: webhookOf("Fail", inCluster, "deployments", "{}")},
		"a PodDisruptionBudget that allows a disruption: no finding":                {args: stop, hub: fixtureCluster, cluster: "{kind: PodDisruptionBudget, metadata: {namespace: shop, name: b}, status: {expectedPods: 3, disruptionsAllowed: 1}}"},
		"a suspended CronJob: no finding":                                           {args: stop + " --until 10h", hub: fixtureCluster, cluster: cronJobOf("* * * * *", ", suspend: true")},
		"a stop for an hour with a CronJob for every minute: no finding":            {args: stop + " --until 1h", hub: fixtureCluster, cluster: cronJobOf("* * * * *", "")},
		"a stop for a night with an hourly CronJob: no finding":                     {args: stop + " --until 10h", hub: fixtureCluster, cluster: cronJobOf("@hourly", "")},
		"a CronJob with a starting deadline: no finding":                            {args: stop + " --until 10h", hub: fixtureCluster, cluster: cronJobOf("* * * * *", ", startingDeadlineSeconds: 300")},
		"a paused MachineHealthCheck: no finding":                                   {args: stop, hub: fixtureCluster, cluster: healthCheckOf("machine.openshift.io/v1beta1", "{cluster.x-k8s.io/paused: ''}")},
		"a MachineAutoscaler without a ClusterAutoscaler: no finding":               {args: stop, hub: fixtureCluster, cluster: fixtureMachineAutoscaler},
		"an OpenShift cluster without an upgrade: no finding":                       {args: stop, hub: fixtureCluster, cluster: conditionOf("config.openshift.io/v1", "ClusterVersion", "Available")},
		"a volume of a CSI driver: no finding":                                      {args: stop, hub: fixtureCluster, cluster: "{kind: PersistentVolume, metadata: {name: pv}, spec: {csi: {driver: d}, claimRef: {namespace: shop, name: data}}, status: {phase: Bound}}"},
		"a local volume without a claim: no finding":                                {args: stop, hub: fixtureCluster, cluster: "{kind: PersistentVolume, metadata: {name: pv}, spec: {local: {path: /d}}, status: {phase: Available}}"},
		"an attached volume: no finding":                                            {args: stop, hub: fixtureCluster, cluster: "{kind: VolumeAttachment, metadata: {name: csi-1}, status: {attached: true}}"},
		"an OpenShift cluster that is years old: no finding":                        {args: stop, hub: fixtureCluster, cluster: "{kind: Namespace, metadata: {name: openshift-cluster-version}}"},
		"a future end in torpor.dev/until: no finding":                              {args: stop, hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, annotations: {torpor.dev/until: 8h}}", 1)},
		"a malformed end that the planned end replaces: no finding":                 {args: stop + " --until 8h", hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, annotations: {torpor.dev/until: tomorrow}}", 1)},
		"a pause annotation with the value false: no finding":                       {args: stop, hub: strings.Replace(fixtureCluster, "{name: NAME}", "{name: NAME, annotations: {hive.openshift.io/powerstate-pause: 'false'}}", 1)},
		"a Slumber whose stop has expired: no finding":                              {args: stop + " --until 1h", hub: running + scheduled},
		"a healthy MySQLCluster: no finding":                                        {args: mysql, hub: fixtureMySQL + "status: {conditions: [{type: Healthy, status: \"True\", reason: Healthy, message: fine, lastTransitionTime: \"2026-01-01T00:00:00Z\"}]}\n"},
		"a backup after the planned stop: no finding":                               {args: "mysqlcluster/NAME --part reconciliation --until 1h", hub: weekly},
		"a start about which the manager only warns: no finding":                    {args: "start " + mysql, hub: fixtureMySQL + "status: {pause: {startFindings: [{severity: warn, message: a replica is behind, remedy: wait}]}}\n"},
		"an app that runs: no finding":                                              {args: app, hub: fixtureApp},
		"the start of a stopped app: no finding":                                    {args: "start " + app, hub: strings.Replace(fixtureApp, "STARTED", "STOPPED", 1)},
		"a Deployment without an autoscaler: no finding":                            {args: "deployment/NAME --until 8h", hub: fixtureDeployment},
		"a Deployment with an autoscaler that does not scale from zero: no finding": {args: "deployment/NAME", hub: fixtureDeployment + fixtureAutoscaler},
		"a stop of a daily CronJob: no finding":                                     {args: "cronjob/NAME --until 60h", hub: fixtureCronJob},
		"an app with a finished deployment: no finding":                             {args: app, hub: finished},
	}
}

// testPlanFixtures runs the command on each fixture, after a survey of its cluster as the manager would make it. The
// plan of a fault must have exactly the code of the fault.
func testPlanFixtures(t *testing.T, server *testenv.Environment) {
	t.Helper()
	server.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixtureNamespace}})
	number := 0
	for code, fixtures := range faults() {
		for name, f := range fixtures {
			number++
			t.Run(name, func(t *testing.T) { f.expectCodes(t, server, fmt.Sprintf("fault-%d", number), code) })
		}
	}
	for name, f := range cleanFixtures() {
		number++
		t.Run(name, func(t *testing.T) { f.expectCodes(t, server, fmt.Sprintf("clean-%d", number)) })
	}
	if wanted := 20; len(faults()) < wanted || len(cleanFixtures()) < wanted {
		t.Errorf("expected %d codes and as many clean fixtures, found %d and %d", wanted, len(faults()), len(cleanFixtures()))
	}
}

func (f planFixture) expectCodes(t *testing.T, server *testenv.Environment, name string, codes ...string) {
	t.Helper()
	f.create(t, server, name)
	f.holdLease(t, server)
	args := append([]string{"plan"}, strings.Fields(strings.ReplaceAll(f.args, "NAME", name))...)
	args = append(args, "-n", fixtureNamespace, "--kubeconfig", server.KubeconfigPath(t))
	var text, data, said bytes.Buffer
	code := Run(t.Context(), Streams{Out: &text, Err: &said}, args)
	Run(t.Context(), Streams{Out: &data, Err: &bytes.Buffer{}}, append(args, "-o", "json"))
	var planned []plannedObject
	if err := json.Unmarshal(data.Bytes(), &planned); err != nil || len(planned) != 1 {
		t.Fatalf("expected one plan, found %s (%v); %s", data.String(), err, said.String())
	}
	found, isBlocked := []string{}, false
	for _, f := range planned[0].Findings {
		found, isBlocked = append(found, f.Code), isBlocked || f.Severity == preflight.Blocking
		if !strings.Contains(text.String(), f.Code) {
			t.Errorf("expected the text to name %s, found:\n%s", f.Code, text.String())
		}
	}
	if diff := cmp.Diff(append([]string{}, codes...), found); diff != "" {
		t.Errorf("codes (-want +got):\n%s\n%s", diff, text.String())
	}
	want := map[bool]exit.Code{true: exit.Refused, false: exit.Done}[isBlocked]
	if exit.Code(code) != want || len(planned[0].Effects) == 0 {
		t.Errorf("expected the exit code %d and what happens, found %d and %v; %s", want, code, planned[0].Effects, said.String())
	}
}

// testPlanReadsEveryPage creates more autoscalers than fit on a page of a list. The one that sorts last by name
// scales the Deployment from zero.
func testPlanReadsEveryPage(t *testing.T, server *testenv.Environment) {
	t.Helper()
	namespace := server.CreateNamespace(t)
	create := func(manifest, name string, change func(*unstructured.Unstructured)) error {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(strings.TrimPrefix(manifest, "---\n"), "NAME", name)), &u.Object); err != nil {
			return err
		}
		u.SetNamespace(namespace)
		change(u)
		return server.Client.Create(t.Context(), u)
	}
	testenv.ExpectNoError(t, create(fixtureDeployment, "web", func(*unstructured.Unstructured) {}))
	var others errgroup.Group
	others.SetLimit(8)
	for n := range pageSize {
		others.Go(func() error {
			return create(fixtureAutoscaler, fmt.Sprintf("other-%d", n), func(*unstructured.Unstructured) {})
		})
	}
	testenv.ExpectNoError(t, others.Wait())
	testenv.ExpectNoError(t, create(fixtureAutoscaler, "web", func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "web", UID: "1-2", Controller: new(true)}})
	}))
	var text, said bytes.Buffer
	code := Run(t.Context(), Streams{Out: &text, Err: &said}, []string{"plan", "deployment/web", "-n", namespace, "--kubeconfig", server.KubeconfigPath(t)})
	if exit.Code(code) != exit.Refused || !strings.Contains(text.String(), "the ScaledObject web of KEDA") {
		t.Errorf("expected the last autoscaler to be reported, found exit code %d: %s%s", code, text.String(), said.String())
	}
}

// create creates the objects of a fixture, with the status that a survey of its cluster would write.
func (f planFixture) create(t *testing.T, server *testenv.Environment, name string) {
	t.Helper()
	for i, doc := range strings.Split(strings.ReplaceAll(f.hub, "NAME", name), "---\n") {
		u := &unstructured.Unstructured{}
		testenv.ExpectNoError(t, yaml.Unmarshal([]byte(doc), &u.Object))
		u.SetNamespace(fixtureNamespace)
		status, _ := u.Object["status"].(map[string]any)
		if i == 0 && u.GetKind() == "ClusterDeployment" && !f.isUnchecked {
			status = maps.Clone(status)
			status["hibernationCheck"] = f.survey(t)
		}
		server.ExpectCreated(t, u)
		if status != nil {
			u.Object["status"] = status
			testenv.ExpectNoError(t, server.Client.Status().Update(t.Context(), u))
		}
		if i == 0 && f.isDeleted {
			testenv.ExpectNoError(t, server.Client.Delete(t.Context(), u))
			t.Cleanup(func() {
				u.SetFinalizers(nil)
				u.SetResourceVersion("")
				_ = server.Client.Update(context.WithoutCancel(t.Context()), u)
			})
		}
	}
}

// holdLease creates the Lease of the installation as a manager writes it.
func (f planFixture) holdLease(t *testing.T, server *testenv.Environment) {
	t.Helper()
	if f.controllers == "" {
		return
	}
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
	scope := lease.Scope{Controllers: strings.Split(f.controllers, ",")}
	if f.namespaces != "" {
		scope.Namespaces = strings.Split(f.namespaces, ",")
	}
	lease.Take(held, "torpor-system", time.Hour, time.Now())
	scope.Write(held)
	server.ExpectCreated(t, held)
	t.Cleanup(func() { testenv.ExpectNoError(t, server.Client.Delete(context.WithoutCancel(t.Context()), held)) })
}

// survey surveys the fixture's cluster as the manager surveys a real one, and returns the hibernation check for the
// status.
func (f planFixture) survey(t *testing.T) map[string]any {
	t.Helper()
	now := time.Now()
	cluster := f.cluster
	if !strings.Contains(cluster, "kind: None") {
		cluster = thirdMaster + "\n---\n" + cluster
	}
	docs := strings.Split(healthyCluster+"---\n"+strings.ReplaceAll(cluster, "HOURAGO", `"`+now.Add(-time.Hour).UTC().Format(time.RFC3339)+`"`), "---\n")
	s := preflight.NewSurvey(now)
	expiry := now.Add(30 * 24 * time.Hour)
	if f.certificate != 0 {
		expiry = now.Add(f.certificate)
	}
	s.AddServingCertificate(expiry)
	for _, list := range preflight.Lists() {
		for _, doc := range docs {
			var item unstructured.Unstructured
			testenv.ExpectNoError(t, yaml.Unmarshal([]byte(doc), &item.Object))
			plural := "/" + strings.ToLower(item.GetKind()) + "s"
			if item.Object == nil || !slices.ContainsFunc(list.Paths(), func(path string) bool { return strings.HasSuffix(path, item.GetAPIVersion()+plural) }) {
				continue
			}
			text, err := json.Marshal(item.Object)
			testenv.ExpectNoError(t, err)
			s.AddItem(list, text)
		}
		if list.Name == f.unread {
			s.SkipList(list)
		}
	}
	text, err := json.Marshal(preflight.WithMachines(s.BuildCheck(nil), nil, f.machines))
	testenv.ExpectNoError(t, err)
	var check map[string]any
	testenv.ExpectNoError(t, json.Unmarshal(text, &check))
	return check
}

// TestEveryCodeHasAFault checks that every code has a fixture.
func TestEveryCodeHasAFault(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(slices.Sorted(slices.Values(preflight.Codes())), slices.Sorted(maps.Keys(faults()))); diff != "" {
		t.Errorf("codes with fixtures (-want +got):\n%s", diff)
	}
}
