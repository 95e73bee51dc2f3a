// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/decision"
)

// maxMessage is the API's limit for the message of a condition.
const maxMessage = 32768

// SetConditions sets the conditions that a controller owns. The keys of owned are the types of the conditions.
func SetConditions(conditions *[]metav1.Condition, owned map[string]decision.Condition, generation int64, now clock.PassiveClock) {
	for _, kind := range slices.Sorted(maps.Keys(owned)) {
		is := owned[kind]
		SetCondition(conditions, metav1.Condition{Type: kind, Status: is.Status, Reason: is.Reason, Message: is.Message}, generation, now)
	}
}

// SetCondition adds or replaces a condition. LastTransitionTime changes only if the status of the condition changes.
func SetCondition(conditions *[]metav1.Condition, c metav1.Condition, generation int64, now clock.PassiveClock) {
	c.ObservedGeneration = generation
	c.Message = truncate(c.Message, maxMessage)
	c.LastTransitionTime = metav1.NewTime(now.Now())
	if old := meta.FindStatusCondition(*conditions, c.Type); old != nil {
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	*conditions = append(*conditions, c)
}
