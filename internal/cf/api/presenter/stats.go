// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

const (
	mebibyte      = 1 << 20
	millisPerCore = 1000
)

// InstanceReport describes the state of one instance of a process.
type InstanceReport struct {
	Index int32
	State korifiv1alpha1.InstanceState
	Since time.Time
	// Details is the reason why the instance does not run, which clients print as an error.
	Details string
	// IsAsleep is true if a Slumber stops the app although its desired state is STARTED. The instance starts when the
	// Slumber's stop ends.
	IsAsleep bool
	// OlderRevision is the revision of an instance that still serves while a deployment or its cancellation replaces
	// it. It is nil for an instance of the current revision.
	OlderRevision *int64
}

// IsRunning reports whether an instance runs, and therefore uses resources.
func (i InstanceReport) IsRunning() bool { return i.State == korifiv1alpha1.RunningInstance }

// ReportInstances returns a report for each desired instance of a process. Missing instances of the app's current
// revision are replaced in the list by instances of older revisions that still serve during a deployment or its
// cancellation. Instances that a restart replaces are omitted, even if they still run.
func ReportInstances(app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess, now time.Time) []InstanceReport {
	// There is a report for each desired instance, because clients stop waiting if the list is empty.
	all := make([]InstanceReport, process.DesiredInstances(p))
	started := app.Spec.DesiredState == korifiv1alpha1.StartedState
	current := started && reportsCurrentRevision(app, p)
	why, asleep := "", ""
	var older []int64
	if current {
		asleep = describeSleep(app, p, now)
		why, older = cmp.Or(asleep, blockingMessage(p)), olderServingInstances(app, p)
	}
	for i := range all {
		all[i] = InstanceReport{Index: int32(i), State: korifiv1alpha1.DownInstance, Details: why, IsAsleep: asleep != ""}
		known, ok := p.Status.InstancesStatus[strconv.Itoa(i)]
		if !current {
			continue
		}
		if !ok {
			if len(older) > 0 {
				all[i] = InstanceReport{Index: int32(i), State: korifiv1alpha1.RunningInstance, OlderRevision: new(older[0])}
				older = older[1:]
			}
			continue
		}
		all[i] = InstanceReport{Index: int32(i), State: known.State, Details: known.Details}
		if known.Timestamp != nil {
			all[i].Since = known.Timestamp.Time
		}
	}
	return all
}

// olderServingInstances returns one revision for each ready instance of a replaced revision that still serves.
// Instances from before the last stop are omitted, because only a deployment or its cancellation keeps replaced
// instances serving.
func olderServingInstances(app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess) (revisions []int64) {
	for _, r := range process.ServingRevisions(app, p) {
		revisions = append(revisions, slices.Repeat([]int64{r.Revision}, int(min(r.Ready, r.Desired)))...)
	}
	return revisions
}

// reportsCurrentRevision reports whether the status of a process describes the app's current revision.
func reportsCurrentRevision(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) bool {
	current, _, unreadable := revision.ReadRevision(app)
	return unreadable == "" && process.Status.ObservedRevision == current && meta.FindStatusCondition(process.Status.Conditions, korifiv1alpha1.ReadyCondition) != nil
}

// blockingMessage returns the reason why an instance has no Pod. It returns "" if the Pod is only delayed, or if a
// canary waits until it is continued.
func blockingMessage(p *korifiv1alpha1.CFProcess) string {
	ready := meta.FindStatusCondition(p.Status.Conditions, korifiv1alpha1.ReadyCondition)
	if ready == nil || process.IsProgressReason(ready.Reason) {
		return ""
	}
	switch ready.Reason {
	case korifiv1alpha1.RunningReason, korifiv1alpha1.StoppedReason, korifiv1alpha1.DeploymentPausedReason:
		return ""
	default:
		return ready.Message
	}
}

// describeSleep returns a message about the Slumber that stops an app. It returns "" if no Slumber stops the app, or if
// the process status does not reflect the stop yet.
func describeSleep(app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess, now time.Time) string {
	ready := meta.FindStatusCondition(p.Status.Conditions, korifiv1alpha1.ReadyCondition)
	scheduled := stoprecord.FindScheduled(app.Status.ScheduledStops, app.Annotations, now)
	if scheduled == nil || ready == nil || ready.Reason != korifiv1alpha1.StoppedReason && ready.Reason != korifiv1alpha1.StoppingReason {
		return ""
	}
	return "the " + stoprecord.NameSlumber(scheduled.Slumber) + " stops the app" + stoprecord.Records(scheduled.Stops).Describe()
}

// IsSettled reports whether a client can stop waiting: an instance runs, all instances have crashed or are stopped by a
// Slumber, or the app is stopped.
func IsSettled(app *korifiv1alpha1.CFApp, all []InstanceReport) bool {
	waitsForNone := 0
	for _, i := range all {
		if i.IsRunning() {
			return true
		}
		if i.State == korifiv1alpha1.CrashedInstance || i.IsAsleep {
			waitsForNone++
		}
	}
	return waitsForNone == len(all) || app.Spec.DesiredState != korifiv1alpha1.StartedState
}

// ProcessStats holds the instances of a process.
type ProcessStats struct {
	Resources []InstanceStats `json:"resources"`
}

// InstanceStats describes an instance of CF v3.
type InstanceStats struct {
	Type             string        `json:"type"`
	Index            int32         `json:"index"`
	State            string        `json:"state"`
	Routable         *bool         `json:"routable,omitempty"`
	Uptime           int64         `json:"uptime"`
	MemQuota         int64         `json:"mem_quota"`
	DiskQuota        int64         `json:"disk_quota"`
	Usage            usageResponse `json:"usage"`
	InstancePorts    []string      `json:"instance_ports"`
	IsolationSegment *string       `json:"isolation_segment"`
	Details          *string       `json:"details"`
	// Revision is a field that Torpor adds. It is the older revision of an instance that still serves during a
	// deployment.
	Revision *int64 `json:"revision,omitempty"`
	// LogRateLimit is always -1, because log rates are not limited.
	LogRateLimit int64 `json:"log_rate_limit"`
}

// usageResponse holds only measured values. CPU is in cores. CPUEntitlement is the used fraction of the requested CPU.
type usageResponse struct {
	Time           *time.Time `json:"time,omitempty"`
	CPU            *float64   `json:"cpu,omitempty"`
	CPUEntitlement *float64   `json:"cpu_entitlement,omitempty"`
	Memory         *int64     `json:"mem,omitempty"`
}

func forUsage(p *korifiv1alpha1.CFProcess, u repositories.InstanceUsage) usageResponse {
	entitled := float64(lrp.DefaultCPURequest(process.LimitMegabytes(p.Spec.MemoryMB))) / millisPerCore
	return usageResponse{Time: new(u.MeasuredAt.UTC()), CPU: &u.CPU, CPUEntitlement: new(u.CPU / entitled), Memory: &u.Memory}
}

// ForStats returns the CF v3 response for the instances of an app's process at the time now, with their measured usage.
func ForStats(app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess, all []InstanceReport, usage map[repositories.InstanceKey]repositories.InstanceUsage, now time.Time) ProcessStats {
	stats := ProcessStats{Resources: make([]InstanceStats, 0, len(all))}
	// After a cancelled deployment, the instances have a different revision than the app.
	current, shownOlder := process.ReadTargetRevision(app, p), map[int64]int32{}
	for _, i := range all {
		key := repositories.InstanceKey{Revision: current, Index: i.Index}
		if i.OlderRevision != nil {
			// Older instances fill the rows without a current instance, so an instance's row may differ from its index.
			key = repositories.InstanceKey{Revision: *i.OlderRevision, Index: shownOlder[*i.OlderRevision]}
			shownOlder[*i.OlderRevision]++
		}
		row := InstanceStats{
			Type: p.Spec.ProcessType, Index: i.Index, State: string(i.State), InstancePorts: []string{}, Revision: i.OlderRevision, LogRateLimit: -1,
			MemQuota: process.LimitMegabytes(p.Spec.MemoryMB) * mebibyte, DiskQuota: process.LimitMegabytes(p.Spec.DiskQuotaMB) * mebibyte,
		}
		if i.Details != "" {
			row.Details = new(i.Details)
		}
		if i.IsRunning() {
			row.Routable = new(true)
			if measured, ok := usage[key]; ok {
				row.Usage = forUsage(p, measured)
			}
		}
		if !i.Since.IsZero() {
			// The clock of the node may be ahead of the API's clock.
			row.Uptime = max(0, int64(now.Sub(i.Since).Seconds()))
		}
		stats.Resources = append(stats.Resources, row)
	}
	return stats
}
