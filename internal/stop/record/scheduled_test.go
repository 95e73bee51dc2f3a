// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// stopOf returns a stop of a Slumber that is in effect, with a reason that names where it is stored.
func stopOf(slumber, reason string) torporv1alpha1.ScheduledStop {
	since := metav1.NewTime(start())
	return torporv1alpha1.ScheduledStop{Slumber: slumber, Stops: []torporv1alpha1.StopRecord{{Since: since, Reason: reason, Requested: true}}}
}

// TestListScheduled has stops in a status and in annotations. It expects a list of Slumbers, each with the place from
// which its stop was read.
func TestListScheduled(t *testing.T) {
	t.Parallel()
	encode := func(stop torporv1alpha1.ScheduledStop) string {
		_, value, err := stoprecord.ScheduledAnnotation(stop, stop.Slumber)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	const nights, weekends = torporv1alpha1.SlumberAnnotationPrefix + "nights", torporv1alpha1.SlumberAnnotationPrefix + "weekends"
	many := map[string]string{}
	for i := range 30 {
		name := fmt.Sprintf("s%02d", i)
		many[torporv1alpha1.SlumberAnnotationPrefix+name] = encode(stopOf(name, "annotation"))
	}
	inStatus := []torporv1alpha1.ScheduledStop{stopOf("nights", "status")}
	for name, row := range map[string]struct {
		status      []torporv1alpha1.ScheduledStop
		annotations map[string]string
		want        string
	}{
		"no status and no annotation: no stop":                              {nil, nil, ""},
		"only a status: the stop of the status":                             {inStatus, nil, "nights:status"},
		"only an annotation: the stop of the annotation":                    {nil, map[string]string{nights: encode(stopOf("nights", "annotation"))}, "nights:annotation"},
		"status and annotation of one Slumber: the stop of the status":      {inStatus, map[string]string{nights: encode(stopOf("nights", "annotation"))}, "nights:status"},
		"status of one Slumber and annotation of another: both stops":       {inStatus, map[string]string{weekends: encode(stopOf("weekends", "annotation"))}, "nights:status weekends:annotation"},
		"annotation whose key and content name different Slumbers: no stop": {nil, map[string]string{weekends: encode(stopOf("nights", "annotation"))}, ""},
		"annotation that is not JSON: no stop":                              {nil, map[string]string{nights: "{"}, ""},
		"annotation that is too large: no stop":                             {nil, map[string]string{nights: encode(stopOf("nights", strings.Repeat("x", 32<<10)))}, ""},
		"annotation without the prefix of Slumbers: no stop":                {nil, map[string]string{"example.com/nights": encode(stopOf("nights", "annotation"))}, ""},
		"more Slumbers than the maximum: the first ones by name":            {nil, many, strings.TrimSpace(strings.Repeat("%:annotation ", 20))},
		"annotation that lists no stops: the Slumber without a stop":        {nil, map[string]string{nights: `{"slumber": "nights"}`}, "nights:"},
		"annotation with an unknown field: the Slumber without a stop":      {nil, map[string]string{nights: `{"slumber": "nights", "later": 1}`}, "nights:"},
	} {
		var found []string
		for _, stop := range stoprecord.ListScheduled(row.status, row.annotations) {
			where := ""
			if len(stop.Stops) > 0 {
				where = stop.Stops[0].Reason
			}
			found = append(found, stop.Slumber+":"+where)
		}
		want := row.want
		for i := range strings.Count(want, "%") {
			want = strings.Replace(want, "%", fmt.Sprintf("s%02d", i), 1)
		}
		if text := strings.Join(found, " "); text != want {
			t.Errorf("%s: expected %q, found %q", name, want, text)
		}
	}
	if len(inStatus) != 1 || cap(inStatus) != 1 {
		t.Error("expected the status to stay as it was")
	}
}

// TestScheduledStopsHold expects stops to be in effect or not, both in the status and in annotations.
func TestScheduledStopsHold(t *testing.T) {
	t.Parallel()
	now := start().Add(time.Hour)
	expiring, ended := stopOf("nights", ""), stopOf("nights", "")
	expiring.ExpiresAt = new(metav1.NewTime(now.Add(time.Minute)))
	ended.Stops[0].EndedAt = new(metav1.NewTime(now.Add(-time.Minute)))
	skip := map[string]string{torporv1alpha1.SkipUntilAnnotation: now.Add(time.Minute).Format(time.RFC3339)}
	for name, row := range map[string]struct {
		stop        torporv1alpha1.ScheduledStop
		annotations map[string]string
		now         time.Time
		want        bool
		end         time.Time
	}{
		"stop without an end: in effect":            {stop: stopOf("nights", ""), now: now, want: true},
		"stop that expires later: in effect":        {stop: expiring, now: now, want: true, end: now.Add(time.Minute)},
		"expired stop: not in effect":               {stop: expiring, now: now.Add(time.Minute)},
		"ended stop: not in effect":                 {stop: ended, now: now},
		"stop that a user skips now: not in effect": {stop: expiring, annotations: skip, now: now},
		"stop after the end of a skip: in effect":   {stop: stopOf("nights", ""), annotations: skip, now: now.Add(time.Minute), want: true},
	} {
		annotation, value, err := stoprecord.ScheduledAnnotation(row.stop, "nights")
		if err != nil {
			t.Fatal(err)
		}
		annotated := map[string]string{annotation: value}
		maps.Copy(annotated, row.annotations)
		for where, found := range map[string]struct {
			stop *torporv1alpha1.ScheduledStop
			end  time.Time
		}{
			"status":     {stoprecord.FindScheduled([]torporv1alpha1.ScheduledStop{row.stop}, row.annotations, row.now), stoprecord.ScheduledEnd([]torporv1alpha1.ScheduledStop{row.stop}, row.annotations, row.now)},
			"annotation": {stoprecord.FindScheduled(nil, annotated, row.now), stoprecord.ScheduledEnd(nil, annotated, row.now)},
		} {
			if (found.stop != nil) != row.want || !found.end.Equal(row.end) {
				t.Errorf("%s, in the %s: expected one that holds: %t until %s, found %+v until %s", name, where, row.want, row.end, found.stop, found.end)
			}
		}
	}
}
