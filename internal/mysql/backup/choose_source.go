// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"strings"
	"time"
)

// SourceCandidate is what is known of an instance that might be dumped.
type SourceCandidate struct {
	// Problem is why it did not answer; empty if it did.
	Problem string
	// Writable instances take writes from clients: the primary.
	Writable bool
	// Replicating is true while both threads of the replication run.
	Replicating bool
	// Lag is how far it is behind the primary.
	Lag time.Duration
	// Errant is true if it has transactions that the primary does not have, or if the primary could not be asked.
	Errant bool
}

// ChooseSource returns the index of the instance to dump: of the replicas in sync the one that lags least, so that
// the primary is left alone; else the primary, with a warning.
func ChooseSource(instances []SourceCandidate, maxLag time.Duration) (chosen int, warnings []string, err error) {
	replica, primary := -1, -1
	var reasons []string
	for i, s := range instances {
		why := unsuitableReason(s, maxLag)
		switch {
		case s.Problem == "" && s.Writable && primary >= 0:
			return 0, nil, fmt.Errorf("expected one writable instance, found %d and %d: nobody knows which data are right; make one of them read-only", primary, i)
		case s.Problem == "" && s.Writable:
			primary = i
		case why != "":
			reasons = append(reasons, fmt.Sprintf("instance %d %s", i, why))
		case replica < 0 || s.Lag < instances[replica].Lag:
			replica = i
		}
	}
	told := strings.Join(reasons, ", ")
	switch {
	case replica >= 0:
		return replica, nil, nil
	case primary < 0:
		return 0, nil, fmt.Errorf("expected a replica in sync or a primary, found none: %s", told)
	case told != "":
		warnings = []string{"the primary was dumped, because no replica was in sync: " + told}
	}
	return primary, warnings, nil
}

func unsuitableReason(s SourceCandidate, maxLag time.Duration) string {
	switch {
	case s.Problem != "":
		return s.Problem
	case !s.Replicating:
		return "does not replicate"
	case s.Errant:
		return "has transactions that the primary does not have"
	case maxLag > 0 && s.Lag > maxLag:
		return "lags behind"
	}
	return ""
}
