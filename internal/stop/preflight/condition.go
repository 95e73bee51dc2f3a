// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// checkAction is the Action of events about findings.
const checkAction = "CheckHibernation"

// Condition returns the condition HibernationPossible. If there are findings, its reason is the code of the worst one,
// and its message lists all of them.
func Condition(findings []Finding, isChecked bool) decision.Condition {
	switch {
	case len(findings) == 0 && !isChecked:
		return decision.Unknown(hivev1.NotCheckedReason, "The cluster has not been surveyed for problems that a hibernation would cause; a running cluster is surveyed about once an hour")
	case len(findings) == 0:
		return decision.True(hivev1.NothingFoundReason, "The survey found no problem for a hibernation or for the resume after it")
	}
	var lines []string
	for _, f := range findings {
		lines = append(lines, f.Code+": "+f.Message)
	}
	message := strings.Join(lines, ". ")
	if HasBlocking(findings) {
		return decision.False(findings[0].Code, message)
	}
	return decision.True(findings[0].Code, message)
}

// Events returns a warning event for each blocking finding, and for certificates that expire soon. It omits findings
// that the previous condition already lists.
func Events(before *metav1.Condition, findings []Finding) []decision.Event {
	var events []decision.Event
	for _, f := range findings {
		isTold := f.Severity == Blocking || f.Code == torporv1alpha1.WakeByNearFinding
		if isTold && !isNamed(before, f.Code) {
			events = append(events, decision.Event{Warning: true, Reason: f.Code, Action: checkAction, Note: f.Message})
		}
	}
	return events
}

// isNamed reports whether the message of a condition, as built by Condition, lists a finding.
func isNamed(c *metav1.Condition, code string) bool {
	return c != nil && slices.ContainsFunc(strings.Split(c.Message, ". "), func(line string) bool { return strings.HasPrefix(line, code+": ") })
}
