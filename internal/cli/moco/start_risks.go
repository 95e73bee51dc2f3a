// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"fmt"
	"strings"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// findStartRisks returns what a start of clustering would meet, as far as the status shows it.
func findStartRisks(c *mocov1beta2.MySQLCluster) ([]clustering.Finding, error) {
	if len(c.Status.Instances) == 0 {
		return []clustering.Finding{{
			Severity: clustering.Warn, Message: "the status has no instances, so nothing could be checked", Remedy: "look at the replication yourself",
		}}, nil
	}
	o, err := observedFromStatus(c)
	if err != nil {
		return nil, err
	}
	found := clustering.CheckStart(o)
	for _, s := range c.Status.Instances {
		judged := s.Writable == nil || *s.Writable || s.ErrantGTIDs != "" || s.AheadGTIDs != "" || s.MissingGTIDs != ""
		if s.Message != "" && !judged {
			found = append(found, clustering.Finding{
				Severity: clustering.Warn, Message: fmt.Sprintf("instance %d: %s", s.Ordinal, s.Message), Remedy: "do what its message says",
			})
		}
	}
	return found, nil
}

// observedFromStatus turns a status back into what the decisions look at. What the status says of transactions is kept.
func observedFromStatus(c *mocov1beta2.MySQLCluster) (clustering.Observed, error) {
	n, p := int(c.Spec.Replicas), clustering.NoInstance
	if i, chosen := c.Status.Primary(); chosen {
		p = i
	}
	o := clustering.Observed{
		Replicas: n, Primary: p, Instances: make([]clustering.Instance, n),
		Source: clustering.OneTimeOperation{Wanted: c.Spec.ReplicationSourceSecretName != nil, Done: c.Status.Cloned},
	}
	var uuid string
	var executed gtid.Set
	missing := make([]gtid.Set, n)
	for _, s := range c.Status.Instances {
		if s.Ordinal < 0 || s.Ordinal >= n {
			continue
		}
		j, err := parseJudgedGTIDs(s)
		if err != nil {
			return o, fmt.Errorf("read the status of instance %d: %w", s.Ordinal, err)
		}
		missing[s.Ordinal] = j.missing
		if s.Ordinal == p {
			if executed, err = gtid.Parse(s.ExecutedGTIDs); err != nil {
				return o, fmt.Errorf("read the status of instance %d: %w", s.Ordinal, err)
			}
		}
		// Ahead are only transactions under the primary's UUID, which the status does not name.
		if first, _, ok := strings.Cut(j.ahead.String(), ":"); ok {
			uuid = first
		}
		o.Instances[s.Ordinal] = instanceFromStatus(s, j)
	}
	for i := range o.Instances {
		o.Instances[i].Executed = o.Instances[i].Executed.Union(executed.Subtract(missing[i]))
	}
	if p == clustering.NoInstance || p >= n {
		return o, nil
	}
	for _, deleted := range missing {
		o.Instances[p].Purged = o.Instances[p].Purged.Union(deleted)
	}
	o.Instances[p].UUID = uuid
	if executed.IsEmpty() {
		return o, addExecutedGTIDs(o.Instances, c.Status.Instances)
	}
	return o, nil
}

// addExecutedGTIDs is for an empty primary, with which nothing was compared: what the others have is what it lost.
func addExecutedGTIDs(into []clustering.Instance, from []mocov1beta2.InstanceStatus) error {
	for _, s := range from {
		if s.Ordinal < 0 || s.Ordinal >= len(into) {
			continue
		}
		held, err := gtid.Parse(s.ExecutedGTIDs)
		if err != nil {
			return fmt.Errorf("read the status of instance %d: executedGTIDs: %w", s.Ordinal, err)
		}
		into[s.Ordinal].Executed = into[s.Ordinal].Executed.Union(held)
	}
	return nil
}

// judgedGTIDs are the transactions of an instance that the status sorts into kinds.
type judgedGTIDs struct{ errant, ahead, missing gtid.Set }

func parseJudgedGTIDs(s mocov1beta2.InstanceStatus) (judgedGTIDs, error) {
	var j judgedGTIDs
	for _, set := range []struct {
		field, text string
		into        *gtid.Set
	}{
		{"errantGTIDs", s.ErrantGTIDs, &j.errant}, {"aheadGTIDs", s.AheadGTIDs, &j.ahead}, {"missingGTIDs", s.MissingGTIDs, &j.missing},
	} {
		var err error
		if *set.into, err = gtid.Parse(set.text); err != nil {
			return j, fmt.Errorf("%s: %w", set.field, err)
		}
	}
	return j, nil
}

// instanceFromStatus returns one instance with what it executed and the primary did not.
func instanceFromStatus(s mocov1beta2.InstanceStatus, j judgedGTIDs) clustering.Instance {
	readOnly := s.Writable != nil && !*s.Writable
	return clustering.Instance{
		Reachable: s.Writable != nil, ReadOnly: readOnly, SuperReadOnly: readOnly, Stopped: s.Stopped,
		KnownErrant: !j.errant.IsEmpty(), Executed: j.errant.Union(j.ahead),
		Channel: clustering.ReplicationChannel{Present: s.SQLThread != "", IO: parseThread(s.IOThread), SQL: parseThread(s.SQLThread)},
	}
}

func parseThread(state string) clustering.ThreadState {
	switch state {
	case "Yes":
		return clustering.Running
	case "Connecting":
		return clustering.Connecting
	default:
		return clustering.Stopped
	}
}
