// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// maxDrainBudget bounds how long a stop waits for pods.
const maxDrainBudget = time.Hour

// StopOptions are how the owner of a cluster wants it to be stopped. They are annotations, because Hive's schema drops fields that it does
// not know.
type StopOptions struct {
	// WorkersFirst says that workers are stopped before the control plane, and started after it.
	WorkersFirst bool
	// DrainBudget is for how long at most the workers are drained before machines are stopped; zero if they are not.
	DrainBudget time.Duration
	// Ignored says which of them make no sense; empty if none is ignored.
	Ignored string
}

// ReadStopOptions reads the options of a ClusterDeployment. One that makes no sense is as good as none: it holds up nothing.
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
			ignored = append(ignored, fmt.Sprintf("the annotation %s is ignored: expected a duration such as 10m, an hour at the most, found %.40q", hivev1.DrainBudgetAnnotation, text))
		} else {
			o.DrainBudget = budget
		}
	}
	o.Ignored = strings.Join(ignored, "; ")
	return o
}

// ignoredNote ends a message.
func (o StopOptions) ignoredNote() string {
	if o.Ignored == "" {
		return ""
	}
	return "; " + o.Ignored
}
