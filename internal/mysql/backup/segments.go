// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/binlog"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

const (
	// segmentTimeFormat names segments, in UTC, so that names sort as times do.
	segmentTimeFormat = "20060102-150405.000000"
	segmentSuffix     = ".binlog.zst"
	// MaxSegmentSpan bounds how far the first and the last commit of a segment are apart.
	MaxSegmentSpan = 5 * time.Minute
	// clockTolerance is how far the clocks of servers may be apart without a segment being overlooked.
	clockTolerance = time.Hour
)

// SegmentPrefix begins the names of all pieces of the binary logs of a cluster. It is not that of backups, of which there are far fewer.
func SegmentPrefix(namespace, name string) string {
	return "moco-binlog/" + namespace + "/" + name + "/"
}

// ShippedKey names the object that says how far the binary logs of a cluster are in the bucket.
func ShippedKey(namespace, name string) string {
	return SegmentPrefix(namespace, name) + "shipped.json"
}

// SegmentKey names a segment after its first commit. writer is one of a kind, so that two never write the same object.
func SegmentKey(namespace, name string, first time.Time, writer string) string {
	return SegmentPrefix(namespace, name) + first.UTC().Format(segmentTimeFormat) + "-" + writer + segmentSuffix
}

// SegmentTime returns the time in the name of a segment; false if it is none.
func SegmentTime(key string) (time.Time, bool) {
	begin, _, _ := strings.Cut(strings.TrimSuffix(path.Base(key), segmentSuffix), "-")
	rest := strings.TrimPrefix(path.Base(key), begin+"-")
	clockPart, _, found := strings.Cut(rest, "-")
	at, err := time.Parse(segmentTimeFormat, begin+"-"+clockPart)
	return at, err == nil && found && strings.HasSuffix(key, segmentSuffix)
}

// SegmentKeysBetween returns the keys of the segments that may hold commits between two times, in the order of their first ones.
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

// ShippedState says how far the binary logs of a cluster are in the bucket.
type ShippedState struct {
	// Until is up to when every commit is in the bucket.
	Until time.Time `json:"until"`
	// GTIDs are the transactions before the end of the newest segment.
	GTIDs gtid.Set `json:"gtids"`
	// Since is from when on nothing is missing: a backup that is not before it can be restored up to Until.
	Since time.Time `json:"since"`
}

// StoredSegment is one in the bucket.
type StoredSegment struct {
	Key string
	binlog.SegmentHeader
}

// ReplayPlan is what follows the dump of a restore.
type ReplayPlan struct {
	// Segments to apply, in this order; only what was committed until Reached is applied of them.
	Segments []StoredSegment
	// Reached is the time whose data result.
	Reached time.Time
}

// ReplayRequest is what to replay binary logs onto, and up to when.
type ReplayRequest struct {
	// Dump are the transactions of a backup, and Time is that of the backup.
	Dump gtid.Set
	Time time.Time
	// Point is the time whose data are wanted; WantsNewest that it is in the future, and so means everything there is.
	Point       time.Time
	WantsNewest bool
}

// PlanReplay chains segments to the transactions of a dump, up to a point. A point that is not reached is an error, unless everything
// there is was asked for, or binary logs were not shipped since the dump.
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
		return plan, fmt.Errorf("expected the binary logs to reach the restore point %s, found them from the backup of %s until %s without a gap; "+
			"choose a restore point between these, or after the next backup", formatTime(want.Point), formatTime(want.Time), formatTime(plan.Reached))
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
			plan.Reached = want.Point // Nothing else was committed before it.
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

// follows says whether a segment goes on where these transactions end: it begins with nothing that they lack, and they have nothing
// that it does not know of, as they would if the primary was replaced by one that had less.
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

// ChooseShipStart returns the first of the wanted sets from which on a source still has everything, and the first such source. primary is
// the index of the source that takes writes: if there is none that has everything, it is shipped from now on, and continued is -1.
func ChooseShipStart(wanted []gtid.Set, sources []ShipSource, primary int) (start gtid.Set, source, continued int) {
	executed := sources[primary].Executed
	for w, set := range wanted {
		if !executed.Contains(set) {
			continue // Another cluster, or one whose primary was replaced by one that had less.
		}
		for i, s := range sources {
			if s.Executed.Contains(set) && set.Contains(s.Purged) {
				return set, i, w
			}
		}
	}
	return executed, primary, -1
}

// ReadyPath is where the Pod that ships says whether it does; StatusPath is where it says how far it is.
const (
	ReadyPath  = "/ready"
	StatusPath = "/status"
)

// ShippingReport is what the Pod that ships says of itself.
type ShippingReport struct {
	// Until is up to when every commit is in the bucket, and Since from when on nothing is missing.
	Until time.Time `json:"until"`
	Since time.Time `json:"since"`
	// SourceIndex is the instance whose binary logs are read.
	SourceIndex int `json:"sourceIndex"`
	// Problem is what keeps it from going on; empty if nothing does.
	Problem string `json:"problem,omitempty"`
}
