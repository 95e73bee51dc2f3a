// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// StopOptions are how the owner of a cluster wants it to be stopped. They are annotations, because Hive's schema drops fields that it does
// not know.
type StopOptions struct {
	// WorkersFirst says that workers are stopped before the control plane, and started after it.
	WorkersFirst bool
	// Ignored says which of them make no sense; empty if none is ignored.
	Ignored string
}

// ReadStopOptions reads the options of a ClusterDeployment. One that makes no sense is as good as none: it holds up nothing.
func ReadStopOptions(annotations map[string]string) StopOptions {
	var o StopOptions
	switch order, isSet := annotations[hivev1.StopOrderAnnotation]; {
	case !isSet:
	case order == hivev1.StopWorkersFirst:
		o.WorkersFirst = true
	default:
		o.Ignored = fmt.Sprintf("the annotation %s is ignored: expected %s, found %.40q", hivev1.StopOrderAnnotation, hivev1.StopWorkersFirst, order)
	}
	return o
}

// ignoredNote ends a message.
func (o StopOptions) ignoredNote() string {
	if o.Ignored == "" {
		return ""
	}
	return "; " + o.Ignored
}
