// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"strings"
	"testing"
	"time"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func TestParseNewUntil(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const (
		tuesday = "2026-12-01T15:00:00" // In winter.
		spring  = "2026-03-28T15:00:00" // On the day before the clock skips 02:00 to 03:00.
		autumn  = "2026-10-24T15:00:00" // On the day before the clock repeats 02:00 to 03:00.
	)
	for name, row := range map[string]struct{ now, text, want string }{
		"a time with a zone":                   {tuesday, "2026-12-01T20:00:00Z", "2026-12-01T20:00:00Z"},
		"a duration":                           {tuesday, "1h30m", "2026-12-01T16:30:00+01:00"},
		"tonight":                              {tuesday, "tonight", "2026-12-01T20:00:00+01:00"},
		"tonight, typed after eight: refused":  {"2026-12-01T21:00:00", "tonight", "which has passed; choose a later one, such as tomorrow or 8h"},
		"tomorrow":                             {tuesday, "tomorrow", "2026-12-02T08:00:00+01:00"},
		"capitals and blanks":                  {tuesday, " Tomorrow ", "2026-12-02T08:00:00+01:00"},
		"tomorrow at a time":                   {tuesday, "tomorrow 18:30", "2026-12-02T18:30:00+01:00"},
		"tomorrow on the last day of the year": {"2026-12-31T23:59:59", "tomorrow", "2027-01-01T08:00:00+01:00"},
		"monday":                               {tuesday, "monday", "2026-12-07T08:00:00+01:00"},
		"an abbreviation":                      {tuesday, "wed", "2026-12-02T08:00:00+01:00"},
		"the name of today's weekday: a week from today":  {tuesday, "tuesday", "2026-12-08T08:00:00+01:00"},
		"a weekday at a time":                             {tuesday, "tuesday 9:05", "2026-12-08T09:05:00+01:00"},
		"a time later today":                              {tuesday, "18:00", "2026-12-01T18:00:00+01:00"},
		"a time that has passed today: tomorrow":          {tuesday, "14:59", "2026-12-02T14:59:00+01:00"},
		"the current minute: tomorrow":                    {tuesday, "15:00", "2026-12-02T15:00:00+01:00"},
		"days":                                            {tuesday, "3d", "2026-12-04T15:00:00+01:00"},
		"weeks":                                           {tuesday, "2w", "2026-12-15T15:00:00+01:00"},
		"the maximum number of days":                      {tuesday, "3650d", "2036-11-28T15:00:00+01:00"},
		"more than the maximum number of days":            {tuesday, "3651d", "expected a time such as"},
		"zero days":                                       {tuesday, "0d", "expected a time such as"},
		"negative days":                                   {tuesday, "-3d", "expected a time such as"},
		"a date":                                          {tuesday, "2026-12-24", "2026-12-24T08:00:00+01:00"},
		"a date at a time":                                {tuesday, "2026-12-24 18:00", "2026-12-24T18:00:00+01:00"},
		"a date of a leap year":                           {tuesday, "2028-02-29", "2028-02-29T08:00:00+01:00"},
		"a date that does not exist":                      {tuesday, "2027-02-29", "expected a time such as"},
		"a date that has passed":                          {tuesday, "2026-11-30", "which has passed"},
		"today's date in the afternoon: refused":          {tuesday, "2026-12-01", "which has passed"},
		"a date that is too far in the future":            {tuesday, "2126-12-01", "expected a time such as"},
		"a time that does not exist":                      {tuesday, "24:00", "expected a time such as"},
		"tonight with a time":                             {tuesday, "tonight 21:00", "expected a time such as"},
		"a time typed before the day":                     {tuesday, "18:00 tomorrow", "expected a time such as"},
		"an unknown word":                                 {tuesday, "later", "expected a time such as"},
		"an empty text":                                   {tuesday, "", "expected a time such as"},
		"only a space":                                    {tuesday, " ", "expected a time such as"},
		"a negative duration":                             {tuesday, "-1h", "which has passed"},
		"a long text":                                     {tuesday, strings.Repeat("9h", 40), "expected a time such as"},
		"a local time that is skipped":                    {spring, "2:30", "2026-03-29T03:30:00+02:00"},
		"a weekday at a local time that is skipped":       {spring, "sunday 02:30", "2026-03-29T03:30:00+02:00"},
		"1d across a skipped hour keeps the time of day":  {spring, "1d", "2026-03-29T15:00:00+02:00"},
		"1d into a skipped hour: an hour later":           {"2026-03-28T02:30:00", "1d", "2026-03-29T03:30:00+02:00"},
		"the morning after a skipped hour":                {spring, "tomorrow", "2026-03-29T08:00:00+02:00"},
		"a local time that occurs twice: the first":       {autumn, "2:30", "2026-10-25T02:30:00+02:00"},
		"1d across a repeated hour keeps the time of day": {autumn, "1d", "2026-10-25T15:00:00+01:00"},
		"the morning after a repeated hour":               {autumn, "tomorrow", "2026-10-25T08:00:00+01:00"},
		"a local time that occurs twice, after the first: the second": {"2026-10-25T02:45:00+02:00", "2:30", "2026-10-25T02:30:00+01:00"},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.ParseInLocation("2006-01-02T15:04:05", row.now, berlin)
			if at, zoned := time.Parse(time.RFC3339, row.now); zoned == nil {
				now, err = at.In(berlin), nil
			}
			if err != nil {
				t.Fatal(err)
			}
			found, err := stoprecord.ParseNewUntil(row.text, now)
			if err != nil {
				if !strings.Contains(err.Error(), row.want) {
					t.Errorf("expected %s, found the error %v", row.want, err)
				}
				return
			}
			if shown := found.Format(time.RFC3339); shown != row.want {
				t.Errorf("expected %s, found %s", row.want, shown)
			}
		})
	}
}

// FuzzParseNewUntil checks that every accepted text is a time in the future, in any zone and at any time.
func FuzzParseNewUntil(f *testing.F) {
	for _, text := range []string{"tonight", "tomorrow 2:30", "mon", "18:00", "3d", "2w", "2026-11-30", "8h", "2026-11-20T22:00:00Z", "d", "İ"} {
		f.Add(text, int64(1_774_700_000), uint8(1))
	}
	zones := []string{"UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"}
	f.Fuzz(func(t *testing.T, text string, second int64, zone uint8) {
		where, err := time.LoadLocation(zones[int(zone)%len(zones)])
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(second&0xffff_ffff, 0).In(where)
		until, err := stoprecord.ParseNewUntil(text, now)
		if err == nil && !until.After(now) {
			t.Errorf("%q at %s: expected a time in the future, found %s", text, now, until)
		}
	})
}
