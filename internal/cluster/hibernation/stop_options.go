// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// maxDrainBudget limits how long a stop waits for pods.
const maxDrainBudget = time.Hour

// StopOptions are the owner's options for stopping a cluster. They are annotations, because Hive's CRD drops unknown
// fields.
type StopOptions struct {
	// WorkersFirst is true if workers are stopped before the control plane, and started after it.
	WorkersFirst bool
	// DrainBudget is the maximum time for which the workers are drained before machines are stopped; zero without a
	// drain.
	DrainBudget time.Duration
	// RequiresPossible is true if a hibernation is refused while the survey of the cluster has blocking findings.
	RequiresPossible bool
	// MachineGroups defines how machine groups are kept from replacing stopped machines; empty without this option.
	// InvalidMachineGroups describes an unknown value, with which no hibernation begins.
	MachineGroups, InvalidMachineGroups string
	// Ignored describes the ignored options; empty if no option is ignored.
	Ignored string
}

// ReadStopOptions reads the options of a ClusterDeployment. A malformed option is ignored and never blocks a stop,
// except for the machine groups.
func ReadStopOptions(annotations map[string]string) StopOptions {
	var o StopOptions
	var ignored []string
	switch order, isSet := annotations[hivev1.StopOrderAnnotation]; {
	case !isSet:
	case order == hivev1.StopWorkersFirst:
		o.WorkersFirst = true
	default:
		ignored = append(ignored, fmt.Sprintf("the annotation %s is ignored: expected %s, found %.40q", hivev1.StopOrderAnnotation, hivev1.StopWorkersFirst, order))
	}
	if text, isSet := annotations[hivev1.DrainBudgetAnnotation]; isSet {
		budget, err := time.ParseDuration(text)
		if err != nil || budget <= 0 || budget > maxDrainBudget {
			ignored = append(ignored, fmt.Sprintf("the annotation %s is ignored: expected a duration of at most one hour, such as 10m, found %.40q", hivev1.DrainBudgetAnnotation, text))
		} else {
			o.DrainBudget = budget
		}
	}
	switch required, isSet := annotations[hivev1.RequireAnnotation]; {
	case !isSet:
	case required == hivev1.RequireHibernationPossible:
		o.RequiresPossible = true
	default:
		ignored = append(ignored, fmt.Sprintf("the annotation %s is ignored: expected %s, found %.40q", hivev1.RequireAnnotation, hivev1.RequireHibernationPossible, required))
	}
	o.Ignored = strings.Join(ignored, "; ")
	o.MachineGroups, o.InvalidMachineGroups = readMachineGroups(annotations)
	return o
}

// readMachineGroups reads how machine groups are treated. An unknown value is not ignored. Without the option that
// the owner wanted, the cluster would not be stopped; with another option, machines could be terminated.
func readMachineGroups(annotations map[string]string) (mode, invalid string) {
	mode, isSet := annotations[hivev1.MachineGroupsAnnotation]
	if known := []string{hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero}; isSet && !slices.Contains(known, mode) {
		return "", fmt.Sprintf("Expected %s or %s in the annotation %s, found %.40q; correct or remove it",
			hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero, hivev1.MachineGroupsAnnotation, mode)
	}
	return mode, ""
}

// ignoredNote returns the end of a message about ignored options.
func (o StopOptions) ignoredNote() string {
	if o.Ignored == "" {
		return ""
	}
	return "; " + o.Ignored
}
