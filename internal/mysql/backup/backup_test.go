// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	releaseimage "github.com/torpor-dev/torpor/hack/release/image"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

func TestChooseBackup(t *testing.T) {
	first, second := backup.ObjectKeysAt("ns", "test", noon()), backup.ObjectKeysAt("ns", "test", noon().Add(time.Hour))
	half := backup.ObjectKeysAt("ns", "test", noon().Add(2*time.Hour))
	other := backup.ObjectKeysAt("ns", "test2", noon().Add(time.Minute))
	all := []string{second.Record, second.Dump, half.Dump, half.Accounts, other.Record, first.Record, "moco/ns/test/notes.txt"}
	mocos := []string{
		second.Record, "moco/ns/test/20261120-100000/dump.tar", "moco/ns/test/20261120-100000/binlog.tar.zst", "moco/ns/test/20261120-110000/dump.tar",
		"moco/ns/test/20261120-123000/dump.tar", "moco/ns/test2/20261120-113000/dump.tar",
	}
	moco := func(after time.Duration, logs string, next time.Time) backup.ObjectKeys {
		folder := "moco/ns/test/" + noon().Add(after).Format("20060102-150405") + "/"
		if logs != "" {
			logs = folder + logs
		}
		return backup.ObjectKeys{
			Dump: folder + "dump.tar", Record: folder + "dump.tar",
			Moco: &backup.MocoBackup{Time: noon().Add(after), Binlogs: logs, Next: next},
		}
	}
	for name, row := range map[string]struct {
		keys  []string
		point time.Time
		want  backup.ObjectKeys
		err   string
	}{
		"the newest complete backup before the point is chosen":       {keys: all, point: noon().AddDate(1, 0, 0), want: second},
		"a backup taken exactly at the point is chosen":               {keys: all, point: noon().Add(time.Hour), want: second},
		"a backup taken after the point is not chosen":                {keys: all, point: noon().Add(time.Hour - time.Second), want: first},
		"a point in another time zone is compared in UTC":             {keys: all, point: noon().In(time.FixedZone("x", 3600)), want: first},
		"a point before the first backup is an error":                 {keys: all, point: noon().Add(-time.Second), err: "found only later backups (2, the first at 2026-11-20T12:00:00Z); choose a later restore point"},
		"an incomplete backup is not chosen":                          {keys: []string{half.Dump}, point: noon().AddDate(1, 0, 0), err: "none at all; check the bucket"},
		"a newer MOCO backup is chosen":                               {keys: mocos, point: noon(), want: moco(-time.Hour, "", noon().Add(30*time.Minute))},
		"MOCO's binary logs are those of the backup before the point": {keys: mocos, point: noon().Add(-90 * time.Minute), want: moco(-2*time.Hour, "binlog.tar.zst", noon().Add(-time.Hour))},
		"a newer Torpor backup is chosen":                             {keys: mocos, point: noon().Add(2 * time.Hour), want: second},
		"a point before the first MOCO backup is an error":            {keys: mocos, point: noon().Add(-3 * time.Hour), err: "found only later backups (4, the first at 2026-11-20T10:00:00Z); choose a later restore point"},
		"an empty bucket is an error":                                 {point: noon(), err: "expected a backup of ns/test that is not after 2026-11-20T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := backup.ChooseBackup(row.keys, "ns", "test", row.point)
			if row.err != "" {
				expectError(t, err, row.err)
				return
			}
			if diff := cmp.Diff(row.want, got); err != nil || diff != "" {
				t.Errorf("(-want +got):\n%s, %v", diff, err)
			}
		})
	}
	if want := "moco/ns/test/20261120-120000/dump.sql.zst"; first.Dump != want {
		t.Errorf("expected %s, found %s", want, first.Dump)
	}
}

func TestExpiredKeys(t *testing.T) {
	at := func(days int) time.Time { return noon().AddDate(0, 0, days) }
	keys := func(days ...int) []string {
		var all []string
		for _, d := range days {
			k := backup.ObjectKeysAt("ns", "test", at(d))
			all = append(all, k.Record, k.Accounts, k.Dump)
		}
		return all
	}
	segment := func(days int) string { return backup.SegmentKey("ns", "test", at(days), "w") }
	segments := []string{segment(-9), segment(-8), segment(-5), segment(-1), backup.ShippedKey("ns", "test")}
	for name, row := range map[string]struct {
		backups, want []string
		cutoff        time.Time
	}{
		"the newest backup before the retention window is kept":                           {keys(-9, -8, -5, -1), append(keys(-9, -8), segment(-9), segment(-8)), at(-3)},
		"older backups are deleted if one was taken at the start of the retention window": {keys(-9, -3, -1), append(keys(-9), segment(-9), segment(-8), segment(-5)), at(-3)},
		"the last complete backup is kept at any age":                                     {keys(-9), nil, at(-3)},
		"an incomplete backup does not count as the last backup":                          {append(keys(-9, -8), keys(-5)[1:]...), append(keys(-9), segment(-9)), at(-3)},
		"nothing is deleted while all backups are in the retention window":                {keys(-2, -1), nil, at(-3)},
		"nothing is deleted while no backup is complete":                                  {keys(-9)[1:], nil, at(-3)},
		"objects that Torpor did not write are kept":                                      {append(keys(-9, -4), "moco/ns/test/20200101-000000/dump.tar", "moco/ns/test/notes"), append(keys(-9), segment(-9), segment(-8), segment(-5)), at(-3)},
		"backups of another cluster are kept":                                             {append(keys(-4), backup.ObjectKeysAt("ns", "test2", at(-9)).Record), []string{segment(-9), segment(-8), segment(-5)}, at(-3)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, backup.ExpiredKeys(row.backups, segments, "ns", "test", row.cutoff)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func gtids(t *testing.T, text string) gtid.Set {
	t.Helper()
	set, err := gtid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestPlanReplay(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	at := func(seconds int) time.Time { return noon().Add(time.Duration(seconds) * time.Second) }
	segment := func(previous, set string, first, last int) backup.StoredSegment {
		return backup.StoredSegment{Key: set, SegmentHeader: binlogparser.SegmentHeader{
			Previous: gtids(t, previous), GTIDs: gtids(t, set), First: at(first), Last: at(last), Until: at(last),
		}}
	}
	chain := []backup.StoredSegment{segment(a+":1-10", a+":11-20", 10, 19), segment(a+":1-20", a+":21-30", 20, 29), segment(a+":1-30", b+":1-5", 31, 39)}
	after := segment(a+":1-25", b+":1-5", 31, 39)
	for name, row := range map[string]struct {
		dump     string
		segments []backup.StoredSegment
		shipped  int
		gtids    string
		point    int
		newest   bool
		want     []string
		reached  int
		err      string
	}{
		"a point in the second segment: the segments up to the point are replayed":  {dump: a + ":1-15", segments: chain, point: 25, want: []string{a + ":11-20", a + ":21-30"}, reached: 25},
		"a point between two segments: the segments up to the point are replayed":   {dump: a + ":1-15", segments: chain, point: 30, want: []string{a + ":11-20", a + ":21-30"}, reached: 30},
		"unordered segments: the segments up to the point are replayed":             {dump: a + ":1-15", segments: []backup.StoredSegment{chain[2], chain[0], chain[1]}, point: 35, want: []string{a + ":11-20", a + ":21-30", b + ":1-5"}, reached: 35},
		"a failover does not count as a gap":                                        {dump: a + ":1-20", segments: chain, point: 38, want: []string{a + ":21-30", b + ":1-5"}, reached: 38},
		"a dump at the end of a segment: the segments up to the point are replayed": {dump: a + ":1-20", segments: chain, point: 21, want: []string{a + ":21-30"}, reached: 21},
		"no commits shipped after the dump: nothing to replay":                      {dump: a + ":1-30", segments: chain[:2], shipped: 60, gtids: a + ":1-30", point: 50, reached: 50},
		"a point after the last shipped transaction: an error":                      {dump: a + ":1-30", segments: chain[:2], shipped: 40, gtids: a + ":1-30", point: 50, err: "until 2026-11-20T12:00:40Z without a gap"},
		"a gap before the point: an error":                                          {dump: a + ":1-15", segments: []backup.StoredSegment{chain[0], chain[2]}, point: 35, err: "from the backup of 2026-11-20T12:00:00Z until 2026-11-20T12:00:19Z without a gap"},
		"the newest restorable point is the last point before a gap":                {dump: a + ":1-15", segments: []backup.StoredSegment{chain[0], chain[2]}, point: 3600, newest: true, want: []string{a + ":11-20"}, reached: 19},
		"a new primary that lacks shipped transactions: an error":                   {dump: a + ":1-20", segments: []backup.StoredSegment{chain[1], after}, point: 35, err: "until 2026-11-20T12:00:29Z without a gap"},
		"overlapping segments of two shippers: all are replayed":                    {dump: a + ":1-10", segments: append([]backup.StoredSegment{segment(a+":1-10", a+":11-17", 10, 16), segment(a+":1-17", a+":18-24", 17, 24)}, chain...), point: 35, want: []string{a + ":11-17", a + ":11-20", a + ":18-24", a + ":21-30", b + ":1-5"}, reached: 35},
		"a last shipment that is an hour older than the dump: nothing to replay":    {dump: a + ":1-30", shipped: -3600, gtids: a + ":1-2", point: 50},
	} {
		t.Run(name, func(t *testing.T) {
			shipped := backup.ShippedState{Until: at(row.shipped), GTIDs: gtids(t, row.gtids)}
			plan, err := backup.PlanReplay(backup.ReplayRequest{Dump: gtids(t, row.dump), Time: noon(), Point: at(row.point), WantsNewest: row.newest}, row.segments, shipped)
			if row.err != "" {
				expectError(t, err, row.err)
				return
			}
			var found []string
			for _, s := range plan.Segments {
				found = append(found, s.Key)
			}
			if diff := cmp.Diff(row.want, found); err != nil || diff != "" || !plan.Reached.Equal(at(row.reached)) {
				t.Errorf("expected %d s, found %s, %v (-want +got):\n%s", row.reached, plan.Reached, err, diff)
			}
		})
	}
}

func TestChooseShipStart(t *testing.T) {
	const a = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-"
	replica := backup.ShipSource{Executed: gtids(t, a+"90"), Purged: gtids(t, a+"50")}
	primary := backup.ShipSource{Executed: gtids(t, a+"99"), Purged: gtids(t, a+"20")}
	lagging := backup.ShipSource{Executed: gtids(t, a+"80"), Purged: gtids(t, a+"15")}
	for name, row := range map[string]struct {
		wanted            []string
		start             string
		source, continued int
	}{
		"a replica has all needed binary logs: shipping starts there":                    {[]string{a + "60", a + "30"}, a + "60", 0, 0},
		"a replica has purged needed binary logs: shipping starts at the primary":        {[]string{a + "40"}, a + "40", 1, 0},
		"a replica lags behind the shipped transactions: shipping starts at the primary": {[]string{a + "95"}, a + "95", 1, 0},
		"only logs since the newest backup exist: shipping starts at the backup":         {[]string{a + "10", a + "70"}, a + "70", 0, 1},
		"only a lagging replica has all needed binary logs: shipping starts there":       {[]string{a + "17"}, a + "17", 2, 0},
		"all instances have purged needed logs: shipping starts at the current state":    {[]string{a + "10", a + "5"}, a + "99", 1, -1},
		"the primary lacks shipped transactions: shipping starts at the current state":   {[]string{a + "100"}, a + "99", 1, -1},
		"nothing was shipped: shipping starts at the current state":                      {nil, a + "99", 1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			var wanted []gtid.Set
			for _, text := range row.wanted {
				wanted = append(wanted, gtids(t, text))
			}
			start, source, continued := backup.ChooseShipStart(wanted, []backup.ShipSource{replica, primary, lagging}, 1)
			if start.String() != row.start || source != row.source || continued != row.continued {
				t.Errorf("expected %s of %d (%d), found %s of %d (%d)", row.start, row.source, row.continued, start, source, continued)
			}
		})
	}
}

func TestMissingBeforePoint(t *testing.T) {
	for name, row := range map[string]struct {
		point, began time.Time
		want         time.Duration
	}{
		"restore point eleven hours after the backup: the missing time is reported":             {point: noon().Add(11 * time.Hour), began: noon().Add(12 * time.Hour), want: 11 * time.Hour},
		"restore point five minutes after the backup: no missing time is reported":              {point: noon().Add(5 * time.Minute), began: noon().Add(time.Hour)},
		"future restore point, backup a minute before the restore: no missing time is reported": {point: noon().AddDate(1, 0, 0), began: noon().Add(time.Minute)},
		"future restore point, backup an hour before the restore: the missing time is reported": {point: noon().AddDate(1, 0, 0), began: noon().Add(time.Hour), want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if found := backup.MissingBeforePoint(noon(), row.point, row.began); found != row.want {
				t.Errorf("expected %s, found %s", row.want, found)
			}
		})
	}
}

func TestChooseSource(t *testing.T) {
	primary, replica := backup.SourceCandidate{Writable: true}, backup.SourceCandidate{Replicating: true}
	lags := func(d time.Duration) backup.SourceCandidate { return backup.SourceCandidate{Replicating: true, Lag: d} }
	down := backup.SourceCandidate{Problem: "does not answer"}
	strange := backup.SourceCandidate{Replicating: true, Errant: true}
	for name, row := range map[string]struct {
		seen    []backup.SourceCandidate
		want    int
		warning string
		err     string
	}{
		"a primary and a replica in sync: the replica is dumped":                  {seen: []backup.SourceCandidate{primary, replica}, want: 1},
		"two replicas: the replica with the lower lag is dumped":                  {seen: []backup.SourceCandidate{lags(2), primary, lags(1)}, want: 2},
		"a single instance: the primary is dumped without a warning":              {seen: []backup.SourceCandidate{primary}},
		"no replica in sync: the primary is dumped with a warning":                {seen: []backup.SourceCandidate{lags(time.Hour), primary, strange}, want: 1, warning: "instance 0 lags behind, instance 2 has transactions that the primary does not have"},
		"a stopped replica: the primary is dumped with a warning":                 {seen: []backup.SourceCandidate{{}, primary}, want: 1, warning: "instance 0 does not replicate"},
		"only an errant replica is reachable: an error":                           {seen: []backup.SourceCandidate{strange, down}, err: "found none: instance 0 has transactions that the primary does not have, instance 1 does not answer"},
		"busy replicas: the primary is dumped with a warning":                     {seen: []backup.SourceCandidate{primary, {Replicating: true, Busy: true}}, warning: "instance 1 could not take a snapshot in time"},
		"one busy replica: the other replica is dumped":                           {seen: []backup.SourceCandidate{primary, {Replicating: true, Busy: true}, lags(1)}, want: 2},
		"a busy primary without replicas: an error":                               {seen: []backup.SourceCandidate{{Writable: true, Busy: true}}, err: "found none: instance 0 could not take a snapshot in time, because of a transaction"},
		"two writable instances: an error":                                        {seen: []backup.SourceCandidate{primary, primary}, err: "expected one primary, found two: instances 0 and 1"},
		"no reachable instance: an error":                                         {seen: []backup.SourceCandidate{down}, err: "instance 0 does not answer"},
		"the primary and a replica of a copy: the replica is dumped":              {seen: []backup.SourceCandidate{{LeadsCopy: true, Replicating: true}, lags(1)}, want: 1},
		"the primary of a copy without a replica in sync is dumped":               {seen: []backup.SourceCandidate{{LeadsCopy: true, Replicating: true}, lags(time.Hour)}, warning: "the primary was dumped, because no replica was in sync: instance 1 lags behind"},
		"a copy with a primary only: the primary is dumped":                       {seen: []backup.SourceCandidate{{LeadsCopy: true}}},
		"a replica without a known primary: an error, but not reported as errant": {seen: []backup.SourceCandidate{{Replicating: true, HasNoPrimary: true}}, err: "instance 0 cannot be compared with the primary, because none was found"},
		"an instance that is down is not considered the primary":                  {seen: []backup.SourceCandidate{{Problem: "does not answer", Writable: true}, primary}, want: 1, warning: "instance 0 does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := backup.ChooseSource(row.seen, time.Minute)
			if row.err != "" {
				expectError(t, err, row.err)
				return
			}
			if err != nil || got != row.want || !strings.Contains(strings.Join(warnings, "\n"), row.warning) || (row.warning == "") != (len(warnings) == 0) {
				t.Errorf("expected %d and %q, found %d, %q and %v", row.want, row.warning, got, warnings, err)
			}
		})
	}
}

func TestFindCopyPrimary(t *testing.T) {
	hosts := []string{"a", "b", "c"}
	for name, row := range map[string]struct {
		sources []string
		want    int
	}{
		"the only instance that follows an external server is the primary":              {[]string{"b", "outside", "b"}, 1},
		"the only reachable instance, which follows an external server, is the primary": {[]string{"", "outside", ""}, 1},
		"two instances follow an external server: no primary":                           {[]string{"outside", "outside", "a"}, -1},
		"a replica follows another instance than the candidate: no primary":             {[]string{"c", "outside", ""}, -1},
		"no instance follows an external server: no primary":                            {[]string{"b", "", "b"}, -1},
		"no reachable instance: no primary":                                             {[]string{"", "", ""}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if found := backup.FindCopyPrimary(hosts, row.sources); found != row.want {
				t.Errorf("expected %d, found %d", row.want, found)
			}
		})
	}
}

func TestACopyIsBackedUpAsOne(t *testing.T) {
	c, policy := testCluster(), &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{JobConfig: bucketConfig()}}
	for name, want := range map[*string]bool{nil: false, new("donor"): true} {
		c.Spec.ReplicationSourceSecretName = name
		cron, err := backup.BuildCronJob(c, policy, "torpor")
		if err != nil {
			t.Fatal(err)
		}
		args := cron.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
		if found := slices.Contains(args, "--copy"); found != want {
			t.Errorf("expected --copy: %v, found %v", want, args)
		}
	}
}

func TestResult(t *testing.T) {
	long := strings.Repeat("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,", 100)
	for name, row := range map[string]struct {
		status mocov1beta2.BackupStatus
		late   []string
		want   mocov1beta2.BackupStatus
	}{
		"a short result is written unchanged": {
			mocov1beta2.BackupStatus{Time: new(metav1.NewTime(noon())), GTIDSet: "a:1", DumpSize: 7, UUIDSet: map[string]string{"0": "a"}, Warnings: []string{"w"}},
			[]string{"not deleted"},
			mocov1beta2.BackupStatus{Time: new(metav1.NewTime(noon())), GTIDSet: "a:1", DumpSize: 7, UUIDSet: map[string]string{"0": "a"}, Warnings: []string{"w", "not deleted"}},
		},
		"a result that is too long is truncated, with a warning": {
			mocov1beta2.BackupStatus{Time: new(metav1.NewTime(noon())), GTIDSet: long, DumpSize: 7, Warnings: []string{"w"}},
			nil,
			mocov1beta2.BackupStatus{Time: new(metav1.NewTime(noon())), DumpSize: 7, Warnings: []string{"the GTID set and 1 warnings are too long for the status; read them in backup.json in the bucket"}},
		},
		"a warning that is not in the record stays in a truncated result": {
			mocov1beta2.BackupStatus{Time: new(metav1.NewTime(noon())), GTIDSet: long, DumpSize: 7, Warnings: []string{"w"}},
			[]string{"not deleted"},
			mocov1beta2.BackupStatus{Time: new(metav1.NewTime(noon())), DumpSize: 7, Warnings: []string{
				"the GTID set and 1 warnings are too long for the status; read them in backup.json in the bucket", "not deleted",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := backup.FormatResult(row.status, row.late...)
			if err != nil || len(text) > 4096 {
				t.Fatalf("%d bytes, %v", len(text), err)
			}
			got, err := backup.ParseResult(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range []string{"", "panic: x", "{}", "[]", `{"time": "yesterday"}`} {
		if _, err := backup.ParseResult(text); err == nil {
			t.Errorf("%q: expected an error, found none", text)
		}
	}
}

// TestRestoreResult covers results that fit into a container's termination message, and a result that does not.
func TestRestoreResult(t *testing.T) {
	long := strings.Repeat("x", 2500)
	at := new(metav1.NewTime(noon()))
	for name, row := range map[string]struct {
		warnings []string
		leftOut  int
		want     []string
		wantLeft int
	}{
		"warnings within the size limit are kept":                          {[]string{"view a", "an event"}, 1, []string{"view a", "an event"}, 1},
		"no warnings and no skipped objects: none are reported":            {nil, 0, nil, 0},
		"warnings beyond the size limit are counted":                       {[]string{"view a", long, long, long}, 1, []string{"view a", long, "2 more warnings are in the log of the Job"}, 1},
		"warnings about skipped objects beyond the size limit are counted": {[]string{"view a", long, long, long}, 4, []string{"view a", long, "2 more warnings are in the log of the Job"}, 3},
		"a single warning above the size limit is counted":                 {[]string{strings.Repeat(long, 4)}, 1, []string{"1 more warnings are in the log of the Job"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := backup.FormatRestoreResult(backup.RestoreResult{
				BackupStatus: mocov1beta2.BackupStatus{Time: at, GTIDSet: "a:1", Warnings: row.warnings}, LeftOut: row.leftOut,
			})
			if err != nil || len(text) > 4096 {
				t.Fatalf("%d bytes, %v", len(text), err)
			}
			got, err := backup.ParseRestoreResult(text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got.Warnings); diff != "" || got.LeftOut != row.wantLeft {
				t.Errorf("expected %d parts, found %d (-want +got):\n%s", row.wantLeft, got.LeftOut, diff)
			}
		})
	}
	for text, want := range map[string]int{
		`{"time": "2026-11-20T12:00:00Z", "leftOut": 9, "warnings": ["a"]}`: 1, `{"time": "2026-11-20T12:00:00Z", "leftOut": -1}`: 0,
	} {
		if got, err := backup.ParseRestoreResult(text); err != nil || got.LeftOut != want {
			t.Errorf("%s: expected %d parts, found %d, %v", text, want, got.LeftOut, err)
		}
	}
	for _, text := range []string{"", "{}", `{"time": "2026-11-20T12:00:00Z", "leftOut": "x"}`} {
		if _, err := backup.ParseRestoreResult(text); err == nil {
			t.Errorf("%q: expected an error, found none", text)
		}
	}
}

func keptJSON(text string) mocov1beta2.Kept {
	return mocov1beta2.Kept{RawExtension: runtime.RawExtension{Raw: []byte(text)}}
}

func testCluster() *mocov1beta2.MySQLCluster {
	c := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "test", UID: "u"}}
	c.Spec.Replicas, c.Spec.MaxDelaySeconds, c.Spec.StartupWaitSeconds = 3, new(30), 3600
	c.Spec.PodTemplate.Spec.Raw = []byte(`{"imagePullSecrets": [{"name": "pull"}], "containers": [{"name": "x", "image": "x"}, {"name": "mysqld", "image": "mysql:9"}]}`)
	return c
}

func TestBadInputIsRefused(t *testing.T) {
	bucketed := mocov1beta2.JobConfig{BucketConfig: &mocov1beta2.BucketConfig{BucketName: "b"}}
	for name, row := range map[string]struct {
		job     mocov1beta2.JobConfig
		image   string
		cluster func(*mocov1beta2.MySQLCluster)
		err     string
	}{
		"a policy without a bucket or a volume: refused": {image: "torpor", err: "expected bucketConfig or workVolume as the destination of the backups"},
		"backend type gcs: refused":                      {image: "torpor", job: mocov1beta2.JobConfig{BucketConfig: &mocov1beta2.BucketConfig{BucketName: "b", BackendType: "gcs"}}, err: "expected s3, found gcs, which Torpor does not support"},
		"backend type azure: refused":                    {image: "torpor", job: mocov1beta2.JobConfig{BucketConfig: &mocov1beta2.BucketConfig{BucketName: "b", BackendType: "azure"}}, err: "found azure"},
		"ephemeral volume: refused":                      {image: "torpor", job: mocov1beta2.JobConfig{WorkVolume: new(keptJSON(`{"emptyDir": {}}`))}, err: "found an emptyDir or ephemeral volume"},
		"a volume that cannot be parsed: refused":        {image: "torpor", job: mocov1beta2.JobConfig{WorkVolume: new(keptJSON(`{"emptyDir": 3}`))}, err: "jobConfig.workVolume: expected the same format as in a Pod"},
		"an environment that cannot be parsed: refused": {
			image: "torpor", job: mocov1beta2.JobConfig{BucketConfig: bucketed.BucketConfig, Env: []mocov1beta2.Kept{keptJSON(`{}`), keptJSON(`{"name": 1}`)}},
			err: "jobConfig.env[1]: expected the same format as in a Pod",
		},
		"no Torpor image: refused": {job: bucketed, err: "start the manager with --image or TORPOR_IMAGE"},
		"no MySQL image: refused": {
			image: "torpor", job: bucketed, err: "expected an image of the mysqld container",
			cluster: func(c *mocov1beta2.MySQLCluster) {
				c.Spec.PodTemplate.Spec.Raw = []byte(`{"containers": [{"name": "mysqld"}]}`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testCluster()
			if row.cluster != nil {
				row.cluster(c)
			}
			policy := &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{JobConfig: row.job}}
			_, err := backup.BuildCronJob(c, policy, row.image)
			expectError(t, err, row.err)
			c.Spec.Restore = &mocov1beta2.Restore{JobConfig: row.job}
			_, err = backup.BuildRestoreJob(c, row.image)
			expectError(t, err, row.err)
		})
	}
}

// TestRestoredUsers also covers upstream's form: one string instead of a list.
func TestRestoredUsers(t *testing.T) {
	for text, want := range map[string]string{`"test_user2@%"`: "--user=test_user2@%", `["a", "b@%"]`: "--user=a --user=b@%", `""`: ""} {
		c := testCluster()
		c.Spec.Restore = &mocov1beta2.Restore{JobConfig: bucketConfig(), Users: &mocov1beta2.RestoredUsers{Raw: []byte(text)}}
		job, err := backup.BuildRestoreJob(c, "torpor")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, arg := range job.Spec.Template.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "--user=") {
				found = append(found, arg)
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s: expected %q, found %q", text, want, got)
		}
	}
	c := testCluster()
	c.Spec.Restore = &mocov1beta2.Restore{JobConfig: bucketConfig(), Users: &mocov1beta2.RestoredUsers{Raw: []byte("7")}}
	_, err := backup.BuildRestoreJob(c, "torpor")
	expectError(t, err, "spec.restore.users: expected a list of names or a string")
}

func TestJobs(t *testing.T) {
	c := testCluster()
	job := mocov1beta2.JobConfig{
		ServiceAccountName: "backups", Env: []mocov1beta2.Kept{keptJSON(`{"name": "AWS_ACCESS_KEY_ID", "value": "k"}`)},
		BucketConfig: &mocov1beta2.BucketConfig{
			BucketName: "b", Region: "r", EndpointURL: "https://e", UsePathStyle: true, CACert: "/ca/ca.pem",
			ServerSideEncryption: "aws:kms", KMSKeyID: "alias/k",
		},
	}
	cron, err := backup.BuildCronJob(c, &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{Schedule: "@daily", JobConfig: job, SuccessfulJobsHistoryLimit: new(int32(0))}}, "torpor")
	if err != nil {
		t.Fatal(err)
	}
	pod := cron.Spec.JobTemplate.Spec.Template
	want := []string{
		"backup", "--cluster=ns/test", "--result=/dev/termination-log", "--max-lag=30s",
		"--host=moco-test-0.moco-test.ns.svc", "--host=moco-test-1.moco-test.ns.svc", "--host=moco-test-2.moco-test.ns.svc",
		"--bucket=b", "--region=r", "--endpoint=https://e", "--ca-cert=/ca/ca.pem", "--sse=aws:kms", "--sse-kms-key-id=alias/k", "--path-style",
	}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if cron.Name != "moco-backup-test" || *cron.Spec.SuccessfulJobsHistoryLimit != 1 || *cron.Spec.Suspend || cron.OwnerReferences[0].UID != "u" {
		t.Errorf("expected name, history and owner, found %+v", cron)
	}
	expectPod(t, pod, "BACKUP_PASSWORD", "mysql-backup")
	shipping := &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{JobConfig: job, PointInTimeRecovery: &mocov1beta2.PointInTimeRecovery{IntervalSeconds: 7}}}
	shipper, err := backup.BuildShipper(c, shipping, "torpor")
	if err != nil {
		t.Fatal(err)
	}
	want = append(append([]string{"ship-binlogs", "--cluster=ns/test", "--interval=7s", "--spool=/spool", "--address=:8081"}, want[4:7]...), want[7:]...)
	if diff := cmp.Diff(want, shipper.Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	expectPod(t, shipper.Spec.Template, "BACKUP_PASSWORD", "mysql-binlog")
	withoutBucket := mocov1beta2.BackupPolicySpec{JobConfig: mocov1beta2.JobConfig{WorkVolume: new(keptJSON(`{}`))}}
	disabled := mocov1beta2.BackupPolicySpec{JobConfig: job, PointInTimeRecovery: &mocov1beta2.PointInTimeRecovery{Disabled: true}}
	for want, spec := range map[string]mocov1beta2.BackupPolicySpec{"5s": {JobConfig: job}, "7s": shipping.Spec, "0s": withoutBucket, "0s, disabled": disabled} {
		if found := spec.ShippingInterval().String(); found != strings.TrimSuffix(want, ", disabled") {
			t.Errorf("expected an interval of %s, found %s", want, found)
		}
	}
	shipping.Spec.JobConfig = mocov1beta2.JobConfig{WorkVolume: new(keptJSON(`{"persistentVolumeClaim": {"claimName": "c"}}`))}
	_, err = backup.BuildShipper(c, shipping, "torpor")
	expectError(t, err, "pointInTimeRecovery: expected jobConfig.bucketConfig")

	c.Spec.Restore = &mocov1beta2.Restore{
		SourceNamespace: "other", SourceName: "old", RestorePoint: metav1.NewTime(noon()), Schema: "app",
		Users: &mocov1beta2.RestoredUsers{Raw: []byte(`["a", "b@%"]`)}, OnError: mocov1beta2.FailOnRestoreError,
		JobConfig: mocov1beta2.JobConfig{WorkVolume: new(keptJSON(`{"persistentVolumeClaim": {"claimName": "c"}}`))},
	}
	filled, err := backup.BuildRestoreJob(c, "torpor")
	if err != nil {
		t.Fatal(err)
	}
	want = []string{
		"restore", "--result=/dev/termination-log", "--host=moco-test-0.moco-test.ns.svc", "--source=other/old",
		"--restore-point=2026-11-20T12:00:00Z", "--wait=1h0m0s", "--schema=app", "--fail-on-error", "--user=a", "--user=b@%", "--folder=/backup",
	}
	if diff := cmp.Diff(want, filled.Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	expectPod(t, filled.Spec.Template, "ADMIN_PASSWORD", "mysql-restore")
	c.Spec.StartupWaitSeconds = 0
	patient, err := backup.BuildRestoreJob(c, "torpor")
	if err != nil {
		t.Fatal(err)
	}
	if args := patient.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--wait=10s") {
		t.Errorf("expected the restore to wait for 10 s at least for the server, found %v", args)
	}
	last := filled.Spec.Template.Spec.Volumes[len(filled.Spec.Template.Spec.Volumes)-1]
	if last.PersistentVolumeClaim == nil || last.PersistentVolumeClaim.ClaimName != "c" {
		t.Errorf("expected the volume of the backups, found %+v", last)
	}
	c.Spec.Offline = true
	if cron, err = backup.BuildCronJob(c, &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{JobConfig: job}}, "torpor"); err != nil || !*cron.Spec.Suspend {
		t.Errorf("expected no backups of a cluster that is offline, found %v, %v", cron.Spec.Suspend, err)
	}
}

func expectPod(t *testing.T, pod corev1.PodTemplateSpec, key, kind string) {
	t.Helper()
	if pod.Labels[mocov1beta2.NameLabel] != kind || *pod.Spec.AutomountServiceAccountToken || pod.Spec.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("expected labels of its own, no token and the servers' pull secret, found %+v", pod)
	}
	main, first := pod.Spec.Containers[0], pod.Spec.InitContainers[0]
	if main.Image != "mysql:9" || first.Image != "torpor" || main.Command[0] != first.Args[1] {
		t.Errorf("expected Torpor's program in MySQL's image, found %+v", main)
	}
	// A volume cannot be mounted over the program.
	if place := first.VolumeMounts[0].MountPath; place == releaseimage.ProgramPath {
		t.Errorf("expected another place for the copy than that of the program in Torpor's image, found %s", place)
	}
	from := main.Env[0].ValueFrom.SecretKeyRef
	if main.Env[0].Name != backup.PasswordVariable || from.Name != "moco-test" || from.Key != key {
		t.Errorf("expected the password from the cluster's Secret, found %+v", main.Env[0])
	}
	if from := main.Env[1].ValueFrom.SecretKeyRef; main.Env[1].Name != backup.AuthoritiesVariable || from.Name != "moco-test-tls" || from.Key != "ca.crt" {
		t.Errorf("expected the authorities from the Secret with the certificate, found %+v", main.Env[1])
	}
}

func expectError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("expected %q in the error, found %v", words, err)
	}
}

func TestDecide(t *testing.T) {
	withPolicy := func(o *backup.Observed) {
		o.Cluster.Spec.BackupPolicyName = new("daily")
		o.Policy = &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{JobConfig: bucketConfig()}}
	}
	withRestore := func(o *backup.Observed) { o.Cluster.Spec.Restore = &mocov1beta2.Restore{JobConfig: bucketConfig()} }
	for name, row := range map[string]struct {
		change func(*backup.Observed)
		want   string
	}{
		"a cluster without backups has no Jobs":                                          {func(*backup.Observed) {}, ""},
		"a cluster with a backup policy gets a CronJob":                                  {withPolicy, "apply CronJob"},
		"the CronJob is deleted when spec.backupPolicyName is removed":                   {func(o *backup.Observed) { o.CronJob = &batchv1.CronJob{} }, "delete CronJob"},
		"a missing backup policy is an error":                                            {func(o *backup.Observed) { o.Cluster.Spec.BackupPolicyName = new("daily") }, "CronJob error"},
		"missing image is an error for the CronJob and for the Job":                      {func(o *backup.Observed) { withPolicy(o); withRestore(o); o.Image = "" }, "CronJob error, Job error"},
		"a new cluster with spec.restore gets a restore Job":                             {withRestore, "create Job"},
		"a restore Job that exists is not created again":                                 {func(o *backup.Observed) { withRestore(o); o.RestoreJob = restoreJobOwnedBy(o.Cluster.UID) }, ""},
		"a Job of a deleted cluster with the same name is left to the garbage collector": {func(o *backup.Observed) { withRestore(o); o.RestoreJob = restoreJobOwnedBy("older") }, ""},
		"a Job without an owner reference is an error":                                   {func(o *backup.Observed) { withRestore(o); o.RestoreJob = &batchv1.Job{} }, "Job error"},
		"a terminating Job without an owner reference delays the restore": {func(o *backup.Observed) {
			withRestore(o)
			o.RestoreJob = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon()}}}
		}, ""},
		"a Job without an owner reference is ignored after the restore": {func(o *backup.Observed) {
			withRestore(o)
			o.RestoreJob, o.Cluster.Status.RestoredTime = &batchv1.Job{}, &metav1.Time{}
		}, ""},
		"a finished restore is not repeated":                                               {func(o *backup.Observed) { withRestore(o); o.Cluster.Status.RestoredTime = &metav1.Time{} }, ""},
		"a cluster with a backup policy and spec.restore gets a CronJob and a restore Job": {func(o *backup.Observed) { withPolicy(o); withRestore(o) }, "apply CronJob, create Job"},
		"a terminating cluster gets no Jobs":                                               {func(o *backup.Observed) { withPolicy(o); o.Cluster.DeletionTimestamp = &metav1.Time{Time: noon()} }, ""},
		"the CronJob is unchanged while reconciliation is stopped": {func(o *backup.Observed) {
			o.CronJob = &batchv1.CronJob{}
			o.Cluster.Annotations = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := backup.Observed{Cluster: testCluster(), Image: "torpor"}
			row.change(&seen)
			plan := backup.Decide(seen)
			var found []string
			for _, effect := range []struct {
				name    string
				planned bool
			}{
				{"apply CronJob", plan.CronJob.Apply != nil},
				{"delete CronJob", plan.CronJob.Delete != nil},
				{"CronJob error", plan.CronJob.Err != nil},
				{"create Job", plan.Restore.Create != nil},
				{"Job error", plan.Restore.Err != nil},
			} {
				if effect.planned {
					found = append(found, effect.name)
				}
			}
			if got := strings.Join(found, ", "); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}

func restoreJobOwnedBy(cluster types.UID) *batchv1.Job {
	kind := mocov1beta2.MySQLClusterKind()
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: "test", UID: cluster, Controller: new(true)},
	}}}
}

func TestConflictingJobIsNamed(t *testing.T) {
	seen := backup.Observed{Cluster: testCluster(), Image: "torpor", RestoreJob: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "moco-restore-test"}}}
	seen.Cluster.Spec.Restore = &mocov1beta2.Restore{JobConfig: bucketConfig()}
	expectError(t, backup.Decide(seen).Restore.Err, "Job moco-restore-test")
	expectError(t, backup.Decide(seen).Restore.Err, "kubectl delete job -n ns moco-restore-test")
}

func bucketConfig() mocov1beta2.JobConfig {
	return mocov1beta2.JobConfig{BucketConfig: &mocov1beta2.BucketConfig{BucketName: "b"}}
}
