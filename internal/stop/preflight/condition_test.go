// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func codesOf(findings []Finding) []string {
	codes := []string{}
	for _, f := range findings {
		codes = append(codes, f.Code)
	}
	return codes
}

func TestFindingsOfACheckForAStop(t *testing.T) {
	in := func(d time.Duration) time.Time { return fixedTime().Add(d) }
	cronjobs := torporv1alpha1.StopFinding{Code: torporv1alpha1.CronJobsMissStartsFinding, Count: 5, Objects: []string{"n/a"}, After: &metav1.Duration{Duration: 30 * time.Hour}}
	for name, row := range map[string]struct {
		check hivev1.HibernationCheck
		stop  StopWindow
		want  []string
	}{
		"a check without findings: no finding":                           {hivev1.HibernationCheck{WakeBy: new(metav1.NewTime(in(99 * time.Hour)))}, StopWindow{}, []string{}},
		"a long stop makes CronJobs miss starts":                         {hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{cronjobs}}, StopWindow{Until: in(30 * time.Hour)}, []string{torporv1alpha1.CronJobsMissStartsFinding}},
		"a short stop does not make CronJobs miss starts":                {hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{cronjobs}}, StopWindow{Until: in(29 * time.Hour)}, []string{}},
		"a stop without an end counts as a stop of one day":              {hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{cronjobs}}, StopWindow{}, []string{}},
		"a stop that outlasts certificates has a finding":                {hivev1.HibernationCheck{WakeBy: new(metav1.NewTime(in(99 * time.Hour)))}, StopWindow{Until: in(100 * time.Hour)}, []string{torporv1alpha1.StopOutlastsCertificatesFinding}},
		"certificates that expire in less than three days are a finding": {hivev1.HibernationCheck{WakeBy: new(metav1.NewTime(in(71 * time.Hour)))}, StopWindow{Until: in(time.Hour)}, []string{torporv1alpha1.WakeByNearFinding}},
		"findings are sorted, the worst first": {
			hivev1.HibernationCheck{Unread: []string{"Nodes"}, Findings: []torporv1alpha1.StopFinding{
				{Code: torporv1alpha1.VolumesLocalFinding, Count: 1, Objects: []string{"n/v"}}, {Code: torporv1alpha1.WebhookBlocksWakeUpFinding, Count: 1, Objects: []string{"w"}},
			}}, StopWindow{}, []string{torporv1alpha1.WebhookBlocksWakeUpFinding, torporv1alpha1.VolumesLocalFinding, torporv1alpha1.NotCheckedFinding},
		},
		"a finding that is blocking because HibernationPossible is required precedes a warning": {
			hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{
				{Code: torporv1alpha1.AutoscalerAddsMachinesFinding, Count: 1, Objects: []string{"a"}}, {Code: torporv1alpha1.VolumesLocalFinding, Count: 1, Objects: []string{"n/v"}},
			}}, StopWindow{RequiresPossible: true}, []string{torporv1alpha1.VolumesLocalFinding, torporv1alpha1.AutoscalerAddsMachinesFinding},
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.stop.Now, row.stop.Since = fixedTime(), fixedTime()
			if diff := cmp.Diff(row.want, codesOf(JudgeCheck(&row.check, row.stop))); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
		})
	}
}

// If HibernationPossible is required, findings that endanger the resume or the data of the cluster are blocking, too.
func TestDangersBlockIfHibernationPossibleIsRequired(t *testing.T) {
	soon := new(metav1.NewTime(fixedTime().Add(time.Hour)))
	for _, code := range Codes() {
		check := hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{{Code: code, Count: 1, Objects: []string{"n/a"}}}}
		if code == torporv1alpha1.WakeByNearFinding {
			check = hivev1.HibernationCheck{WakeBy: soon}
		}
		usual := JudgeCheck(&check, StopWindow{Now: fixedTime()})
		required := JudgeCheck(&check, StopWindow{Now: fixedTime(), RequiresPossible: true})
		isDanger := slices.Contains([]string{"WakeByNear", "QuotaExceeded", "EtcdQuorumSmall", "HealthCheckReplacesMachines", "VolumesLocal"}, code)
		if HasBlocking(required) != (HasBlocking(usual) || isDanger) {
			t.Errorf("%s: expected it to block with the requirement: %t, found %+v", code, HasBlocking(usual) || isDanger, required)
		}
	}
}

func TestHibernationPossible(t *testing.T) {
	volumes, webhooks := NewFinding(torporv1alpha1.VolumesLocalFinding, 5, "n/a", "n/b", "n/c"), NewFinding(torporv1alpha1.WebhookBlocksWakeUpFinding, 1, "guard")
	for name, row := range map[string]struct {
		findings  []Finding
		isChecked bool
		status    metav1.ConditionStatus
		reason    string
		says      string
	}{
		"no survey: Unknown":                                             {nil, false, metav1.ConditionUnknown, hivev1.NotCheckedReason, "not been surveyed"},
		"no finding: True":                                               {nil, true, metav1.ConditionTrue, hivev1.NothingFoundReason, "The survey found no problem"},
		"warnings keep HibernationPossible True":                         {[]Finding{volumes}, true, metav1.ConditionTrue, torporv1alpha1.VolumesLocalFinding, "found volumes on local disks: n/a, n/b, n/c and 2 more;"},
		"a blocking finding makes HibernationPossible False":             {[]Finding{webhooks, volumes}, true, metav1.ConditionFalse, torporv1alpha1.WebhookBlocksWakeUpFinding, ". VolumesLocal: Expected"},
		"an object that is being deleted has a finding without a survey": {JudgeObject(ObjectFacts{IsBeingDeleted: true}), false, metav1.ConditionFalse, torporv1alpha1.BeingDeletedFinding, "BeingDeleted: "},
		"an unsupported version makes HibernationPossible False":         {JudgeObject(ObjectFacts{Unsupported: "Too old"}), false, metav1.ConditionFalse, torporv1alpha1.HibernationUnsupportedFinding, "HibernationUnsupported: Too old"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Condition(row.findings, row.isChecked)
			if got.Status != row.status || got.Reason != row.reason || !strings.Contains(got.Message, row.says) {
				t.Errorf("expected %s/%s with %q, found %+v", row.status, row.reason, row.says, got)
			}
		})
	}
}

func TestEventsReportNewFindings(t *testing.T) {
	near, webhooks, volumes := NewFinding(torporv1alpha1.WakeByNearFinding, 0), NewFinding(torporv1alpha1.WebhookBlocksWakeUpFinding, 1, "guard"), NewFinding(torporv1alpha1.VolumesLocalFinding, 1, "n/a")
	said := Condition([]Finding{webhooks, volumes}, true)
	before := &metav1.Condition{Message: said.Message}
	got := []string{}
	for _, e := range Events(before, []Finding{webhooks, near, volumes}) {
		got = append(got, e.Reason)
	}
	if diff := cmp.Diff([]string{torporv1alpha1.WakeByNearFinding}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if all := Events(nil, []Finding{webhooks, near, volumes}); len(all) != 2 {
		t.Errorf("expected the blocking findings and the certificates, found %+v", all)
	}
}

func TestEveryCodeHasAText(t *testing.T) {
	for _, e := range catalogue() {
		f := NewFinding(e.code, 4, "a", "b", "c")
		if f.Message == "" || strings.Contains(f.Message, "%") || strings.Contains(f.Message, ". ") {
			t.Errorf("%s: expected a sentence without another one, found %q", e.code, f.Message)
		}
	}
}
