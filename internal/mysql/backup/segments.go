// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

const (
	// segmentTimeFormat is the format of the time in the names of segments, in UTC, so names sort by time.
	segmentTimeFormat = "20060102-150405.000000"
	segmentSuffix     = ".binlog.zst"
	// MaxSegmentSpan limits the time between the first and the last commit of a segment.
	MaxSegmentSpan = 5 * time.Minute
	// clockTolerance is the maximum difference between the clocks of servers for which all segments are found.
	clockTolerance = time.Hour
)

// SegmentPrefix returns the prefix of the keys of a cluster's binary logs. It differs from ObjectPrefix, so a list of
// the few backups does not include the many segments.
func SegmentPrefix(namespace, name string) string {
	return "moco-binlog/" + namespace + "/" + name + "/"
}

// ShippedKey returns the key of the object that records the state of a cluster's binary logs in the bucket.
func ShippedKey(namespace, name string) string {
	return SegmentPrefix(namespace, name) + "shipped.json"
}

// SegmentKey returns the key of a segment, which contains the time of its first commit. writer is unique, so two
// writers never write the same object.
func SegmentKey(namespace, name string, first time.Time, writer string) string {
	return SegmentPrefix(namespace, name) + first.UTC().Format(segmentTimeFormat) + "-" + writer + segmentSuffix
}

// SegmentTime returns the time in the key of a segment. The second result is false for other keys.
func SegmentTime(key string) (time.Time, bool) {
	begin, _, _ := strings.Cut(strings.TrimSuffix(path.Base(key), segmentSuffix), "-")
	rest := strings.TrimPrefix(path.Base(key), begin+"-")
	clockPart, _, found := strings.Cut(rest, "-")
	at, err := time.Parse(segmentTimeFormat, begin+"-"+clockPart)
	return at, err == nil && found && strings.HasSuffix(key, segmentSuffix)
}

// SegmentKeysBetween returns the keys of the segments that may contain commits between two times, ordered by first
// commit.
func SegmentKeysBetween(keys []string, from, to time.Time) []string {
	var found []string
	for _, key := range keys {
		if at, ok := SegmentTime(key); ok && !at.Before(from.Add(-clockTolerance)) && !at.After(to.Add(clockTolerance)) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

// ShippedState records the state of a cluster's binary logs in the bucket.
type ShippedState struct {
	// Until is the time up to which every commit is in the bucket.
	Until time.Time `json:"until"`
	// GTIDs is the set of transactions up to the end of the newest segment.
	GTIDs gtid.Set `json:"gtids"`
	// Since is the time since which no binary log is missing. A backup made at or after this time can be restored up to
	// Until.
	Since time.Time `json:"since"`
}

// StoredSegment describes a segment in the bucket.
type StoredSegment struct {
	Key string
	// File is the name of the binary log in a tar archive. It is empty if the object is one segment.
	File string
	binlogparser.SegmentHeader
}

// ReplayPlan lists the binary logs that a restore applies after the dump.
type ReplayPlan struct {
	// Segments are the segments to apply, in order. Only transactions committed until Reached are applied.
	Segments []StoredSegment
	// Reached is the time to which the restore brings the data.
	Reached time.Time
}

// ReplayRequest describes the backup on which binary logs are replayed, and the wanted restore point.
type ReplayRequest struct {
	// Dump is the set of transactions in the backup, and Time is the time of the backup.
	Dump gtid.Set
	Time time.Time
	// Point is the restore point. WantsNewest means that Point is in the future, so all available binary logs are
	// replayed.
	Point       time.Time
	WantsNewest bool
}

// PlanReplay returns the segments that continue the transactions of a dump without a gap, up to the restore point. It
// returns an error if these segments end before the restore point, unless WantsNewest is set or no binary logs were
// shipped since the dump.
func PlanReplay(want ReplayRequest, segments []StoredSegment, shipped ShippedState) (ReplayPlan, error) {
	known := shipped.Until
	for _, s := range segments {
		known = latest(known, s.Until)
	}
	if known.Before(want.Time.Add(-acceptedGap)) {
		return ReplayPlan{Reached: want.Time}, nil
	}
	plan := chainSegments(want, segments, shipped)
	switch {
	case !plan.Reached.Before(want.Point):
		plan.Reached = want.Point
	case !want.WantsNewest:
		return plan, fmt.Errorf("expected the binary logs to reach the restore point %s, found them only from the backup of %s until %s without a gap; "+
			"choose a restore point between these times, or after the next backup", formatTime(want.Point), formatTime(want.Time), formatTime(plan.Reached))
	}
	return plan, nil
}

func chainSegments(want ReplayRequest, segments []StoredSegment, shipped ShippedState) ReplayPlan {
	plan, executed := ReplayPlan{Reached: want.Time}, want.Dump
	rest := slices.SortedFunc(slices.Values(segments), func(a, b StoredSegment) int { return a.First.Compare(b.First) })
	for {
		i := slices.IndexFunc(rest, func(s StoredSegment) bool { return s.follows(executed) })
		if i < 0 {
			break
		}
		next := rest[i]
		rest = slices.Delete(rest, i, i+1)
		if next.First.After(want.Point) {
			plan.Reached = want.Point // The plan contains all transactions up to the restore point.
			return plan
		}
		if !executed.Contains(next.GTIDs) {
			plan.Segments = append(plan.Segments, next)
			executed = executed.Union(next.GTIDs)
		}
		plan.Reached = latest(plan.Reached, next.Until)
	}
	if shipped.GTIDs.Equal(executed) {
		plan.Reached = latest(plan.Reached, shipped.Until)
	}
	return plan
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// follows reports whether a segment continues the executed transactions. Every transaction before the segment must have
// been executed. Conversely, every executed transaction must be in the segment or before it. The second condition is
// false if a new primary had fewer transactions than the old one.
func (s StoredSegment) follows(executed gtid.Set) bool {
	return executed.Contains(s.Previous) && s.Previous.Union(s.GTIDs).Contains(executed)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ShipSource is an instance whose binary logs may be shipped.
type ShipSource struct{ Executed, Purged gtid.Set }

// ChooseShipStart returns the set of transactions after which shipping starts, the index of the source to ship from,
// and the index of the set in wanted. It returns the first set for which a source still has all later transactions. If
// there is none, it returns the transactions that the primary has executed, and -1. primary is the index of the
// writable source.
func ChooseShipStart(wanted []gtid.Set, sources []ShipSource, primary int) (start gtid.Set, source, continued int) {
	executed := sources[primary].Executed
	for w, set := range wanted {
		if !executed.Contains(set) {
			continue // The set is from another cluster, or the new primary has fewer transactions.
		}
		for i, s := range sources {
			if s.Executed.Contains(set) && set.Contains(s.Purged) {
				return set, i, w
			}
		}
	}
	return executed, primary, -1
}

// ReadyPath is the HTTP path for the readiness probe of the shipping Pod, and StatusPath the path of its
// ShippingReport.
const (
	ReadyPath  = "/ready"
	StatusPath = "/status"
)

// ShippingReport is the status that the shipping Pod serves.
type ShippingReport struct {
	// Until is the time up to which every commit is in the bucket. Since is the time since which no binary log is
	// missing.
	Until time.Time `json:"until"`
	Since time.Time `json:"since"`
	// SourceIndex is the index of the instance whose binary logs are read.
	SourceIndex int `json:"sourceIndex"`
	// Problem is the error that prevents the Pod from continuing. It is empty if there is no error.
	Problem string `json:"problem,omitempty"`
}
