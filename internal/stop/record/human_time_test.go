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
		"time with a zone: accepted":                                                 {tuesday, "2026-12-01T20:00:00Z", "2026-12-01T20:00:00Z"},
		"duration: added to the current time":                                        {tuesday, "1h30m", "2026-12-01T16:30:00+01:00"},
		"tonight: 20:00 today":                                                       {tuesday, "tonight", "2026-12-01T20:00:00+01:00"},
		"tonight, typed after eight: refused":                                        {"2026-12-01T21:00:00", "tonight", "which has passed; choose a later one, such as tomorrow or 8h"},
		"tomorrow: 08:00":                                                            {tuesday, "tomorrow", "2026-12-02T08:00:00+01:00"},
		"capitals and blanks: accepted":                                              {tuesday, " Tomorrow ", "2026-12-02T08:00:00+01:00"},
		"tomorrow with a time: accepted":                                             {tuesday, "tomorrow 18:30", "2026-12-02T18:30:00+01:00"},
		"tomorrow on the last day of the year: January 1":                            {"2026-12-31T23:59:59", "tomorrow", "2027-01-01T08:00:00+01:00"},
		"monday: 08:00 on the next Monday":                                           {tuesday, "monday", "2026-12-07T08:00:00+01:00"},
		"abbreviation of a weekday: accepted":                                        {tuesday, "wed", "2026-12-02T08:00:00+01:00"},
		"name of today's weekday: a week from today":                                 {tuesday, "tuesday", "2026-12-08T08:00:00+01:00"},
		"today's weekday at a passed time: a week later":                             {tuesday, "tuesday 9:05", "2026-12-08T09:05:00+01:00"},
		"time later today: today":                                                    {tuesday, "18:00", "2026-12-01T18:00:00+01:00"},
		"time that has passed today: tomorrow":                                       {tuesday, "14:59", "2026-12-02T14:59:00+01:00"},
		"current minute: tomorrow":                                                   {tuesday, "15:00", "2026-12-02T15:00:00+01:00"},
		"days: added to the current time":                                            {tuesday, "3d", "2026-12-04T15:00:00+01:00"},
		"weeks: added to the current time":                                           {tuesday, "2w", "2026-12-15T15:00:00+01:00"},
		"maximum number of days: accepted":                                           {tuesday, "3650d", "2036-11-28T15:00:00+01:00"},
		"more than the maximum number of days: refused":                              {tuesday, "3651d", "expected a time such as"},
		"zero days: refused":                                                         {tuesday, "0d", "expected a time such as"},
		"negative days: refused":                                                     {tuesday, "-3d", "expected a time such as"},
		"date without a time: 08:00":                                                 {tuesday, "2026-12-24", "2026-12-24T08:00:00+01:00"},
		"date with a time: accepted":                                                 {tuesday, "2026-12-24 18:00", "2026-12-24T18:00:00+01:00"},
		"February 29 of a leap year: accepted":                                       {tuesday, "2028-02-29", "2028-02-29T08:00:00+01:00"},
		"date that does not exist: refused":                                          {tuesday, "2027-02-29", "expected a time such as"},
		"date that has passed: refused":                                              {tuesday, "2026-11-30", "which has passed"},
		"today's date in the afternoon: refused":                                     {tuesday, "2026-12-01", "which has passed"},
		"date that is too far in the future: refused":                                {tuesday, "2126-12-01", "expected a time such as"},
		"time of day that does not exist: refused":                                   {tuesday, "24:00", "expected a time such as"},
		"tonight with a time: refused":                                               {tuesday, "tonight 21:00", "expected a time such as"},
		"time typed before the day: refused":                                         {tuesday, "18:00 tomorrow", "expected a time such as"},
		"unknown word: refused":                                                      {tuesday, "later", "expected a time such as"},
		"empty text: refused":                                                        {tuesday, "", "expected a time such as"},
		"only a space: refused":                                                      {tuesday, " ", "expected a time such as"},
		"negative duration: refused":                                                 {tuesday, "-1h", "which has passed"},
		"long text: refused":                                                         {tuesday, strings.Repeat("9h", 40), "expected a time such as"},
		"local time that is skipped: an hour later":                                  {spring, "2:30", "2026-03-29T03:30:00+02:00"},
		"weekday with a local time that is skipped: an hour later":                   {spring, "sunday 02:30", "2026-03-29T03:30:00+02:00"},
		"1d across a skipped hour keeps the time of day":                             {spring, "1d", "2026-03-29T15:00:00+02:00"},
		"1d into a skipped hour: an hour later":                                      {"2026-03-28T02:30:00", "1d", "2026-03-29T03:30:00+02:00"},
		"tomorrow, after a skipped hour: 08:00":                                      {spring, "tomorrow", "2026-03-29T08:00:00+02:00"},
		"local time that occurs twice: the first":                                    {autumn, "2:30", "2026-10-25T02:30:00+02:00"},
		"1d across a repeated hour keeps the time of day":                            {autumn, "1d", "2026-10-25T15:00:00+01:00"},
		"tomorrow, after a repeated hour: 08:00":                                     {autumn, "tomorrow", "2026-10-25T08:00:00+01:00"},
		"local time that occurs twice, typed after its first occurrence: the second": {"2026-10-25T02:45:00+02:00", "2:30", "2026-10-25T02:30:00+01:00"},
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
