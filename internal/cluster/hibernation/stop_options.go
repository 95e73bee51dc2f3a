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

// StopOptions are the owner's options for stopping a cluster. They are annotations, because Hive's schema drops
// unknown fields.
type StopOptions struct {
	// WorkersFirst is true if workers are stopped before the control plane, and started after it.
	WorkersFirst bool
	// DrainBudget is how long the workers are drained at most before machines are stopped; zero if they are not
	// drained.
	DrainBudget time.Duration
	// RequiresPossible is true if a hibernation is refused while the survey of the cluster has blocking findings.
	RequiresPossible bool
	// Ignored describes the options that are malformed; empty if none is.
	Ignored string
}

// ReadStopOptions reads the options of a ClusterDeployment. A malformed option is ignored and never blocks a
// stop.
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
	switch required, isSet := annotations[hivev1.RequireAnnotation]; {
	case !isSet:
	case required == hivev1.RequireHibernationPossible:
		o.RequiresPossible = true
	default:
		ignored = append(ignored, fmt.Sprintf("the annotation %s is ignored: expected %s, found %.40q", hivev1.RequireAnnotation, hivev1.RequireHibernationPossible, required))
	}
	o.Ignored = strings.Join(ignored, "; ")
	return o
}

// ignoredNote returns the end of a message.
func (o StopOptions) ignoredNote() string {
	if o.Ignored == "" {
		return ""
	}
	return "; " + o.Ignored
}
