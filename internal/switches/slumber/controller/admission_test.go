// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	badForm  = "expected five fields of cron with values in their ranges"
	badRange = "expected ranges of minutes, hours, days of the month and months that do not end before they begin"
	badDay   = "expected a day of the calendar"
	badZone  = "expected the IANA name of a time zone"
)

// TestSchedulesAtAdmission has schedules, the error of a real API server, and the error of the controller. A
// schedule that the API server rejects is also an error for the controller.
func TestSchedulesAtAdmission(t *testing.T) {
	env := shared.Get(t)
	namespace := env.CreateNamespace(t)
	for name, row := range map[string]struct {
		spec               torporv1alpha1.SlumberSpec
		refusal, byManager string
	}{
		"nights of working days: accepted":                    {sleepAt("0 20 * * 1-5"), "", ""},
		"month and weekday names in any case: accepted":       {sleepAt("0 20 * JAN,feb FRI-MON"), "", ""},
		"lists, steps, weekday 7 and leading zeros: accepted": {sleepAt(" 00,*/15  5-9/2,020 ? 1-12/3 5-7 "), "", ""},
		"step after a single value: accepted":                 {sleepAt("5/10 20 1 * *"), "", ""},
		"window on February 29: accepted":                     {sleepAt("0 20 29 2 *"), "", ""},
		"February 31 or every Monday: accepted":               {sleepAt("0 20 31 2 1"), "", ""},
		"cron expression of four fields: refused":             {sleepAt("0 20 * *"), badForm, "five fields"},
		"cron expression of six fields: refused":              {sleepAt("0 0 20 * * *"), badForm, "five fields"},
		"words instead of fields: refused":                    {sleepAt("every day at 8"), badForm, "five fields"},
		"@midnight instead of five fields: refused":           {sleepAt("@midnight"), badForm, "five fields"},
		"time zone in the expression: refused":                {sleepAt("TZ=UTC 0 20 * * *"), badForm, "time zone in spec.timeZone"},
		"minute 60: refused":                                  {sleepAt("60 20 * * *"), badForm, "above maximum"},
		"hour 24: refused":                                    {sleepAt("0 24 * * *"), badForm, "above maximum"},
		"day 0: refused":                                      {sleepAt("0 20 0 * *"), badForm, "below minimum"},
		"month 13: refused":                                   {sleepAt("0 20 * 13 *"), badForm, "above maximum"},
		"weekday 8: refused":                                  {sleepAt("0 20 * * 8"), badForm, "above maximum"},
		"step 0: refused":                                     {sleepAt("*/0 20 * * *"), badForm, "positive"},
		"range of hours from 20 to 7: refused":                {sleepAt("0 20-7 * * *"), badRange, "beyond end of range"},
		"reversed second range: refused":                      {sleepAt("0 1-2,20-7 * * *"), badRange, "beyond end of range"},
		"window on February 30: refused":                      {sleepAt("0 20 30 2 *"), badDay, badDay},
		"window on April 31 by name: refused":                 {sleepAt("0 20 31 apr *"), badDay, badDay},
		"range of months from December to January: accepted, the controller reports an error":                            {sleepAt("0 20 * dec-jan *"), "", "beyond end of range"},
		"the same time for sleep and wake: refused":                                                                      {sleepAt("0 7 * * *"), "expected different times for sleep and wake", "found the same"},
		"the same time for sleep and wake, written with different whitespace: accepted, the controller reports an error": {sleepAt("0  7 * * *"), "", "found the same"},
		"no window and no holiday: refused":                                                                              {torporv1alpha1.SlumberSpec{}, "expected a window or a holiday; found none", "found none"},
		"city as a time zone: accepted":                                                                                  {inZone("America/Argentina/Buenos_Aires"), "", ""},
		"zone named by its offset: accepted":                                                                             {inZone("Etc/GMT+5"), "", ""},
		"offset as a time zone: refused":                                                                                 {inZone("+01:00"), badZone, "time zone"},
		"manager's local time zone: refused":                                                                             {inZone("Local"), badZone, "time zone"},
		"path as a time zone: refused":                                                                                   {inZone("../Berlin"), badZone, "time zone"},
		"unknown city: accepted, the controller reports an error":                                                        {inZone("Europe/Atlantis"), "", "time zone"},
		"holiday of one day: accepted":                                                                                   {onDays("2026-12-24", ""), "", ""},
		"holiday over the turn of the year: accepted":                                                                    {onDays("--12-24", "--01-06"), "", ""},
		"holiday that ends before it begins: refused":                                                                    {onDays("2026-12-26", "2026-12-24"), "expected a last day on or after the first", "on or after the first"},
		"holiday on February 30: refused":                                                                                {onDays("--02-30", ""), badDay, "expected a day"},
		"holiday up to June 31: refused":                                                                                 {onDays("--06-01", "--06-31"), badDay, "expected a day"},
		"holiday on February 29 of a year without that day: accepted, the controller reports an error":                   {onDays("2027-02-29", ""), "", "expected a day"},
	} {
		t.Run(name, func(t *testing.T) {
			row.spec.Waves = []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "Deployment"}}}}
			s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nights"}, Spec: row.spec}
			testenv.ExpectRefused(t, env.Client.Create(t.Context(), s, client.DryRunAll), row.refusal)
			_, err := slumber.ParseSchedule(row.spec)
			if found := errorText(err); (found == "") != (row.byManager == "") || !strings.Contains(found, row.byManager) {
				t.Errorf("expected the manager's error %q, found %q", row.byManager, found)
			}
		})
	}
}

func sleepAt(sleep string) torporv1alpha1.SlumberSpec {
	return torporv1alpha1.SlumberSpec{Windows: []torporv1alpha1.SlumberWindow{{Sleep: sleep, Wake: "0 7 * * *"}}}
}

func inZone(name string) torporv1alpha1.SlumberSpec {
	spec := sleepAt("0 20 * * *")
	spec.TimeZone = name
	return spec
}

func onDays(first, last string) torporv1alpha1.SlumberSpec {
	return torporv1alpha1.SlumberSpec{Holidays: []torporv1alpha1.Holiday{{First: first, Last: last}}}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
