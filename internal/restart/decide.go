// SPDX-License-Identifier: Apache-2.0

package restart

import "time"

// staleInterval is when a view that seems stale is looked at again; what makes it fresh is an event too.
const staleInterval = 5 * time.Second

// Rule is one line of the decision.
type Rule struct {
	Name string
	When func(Observed) bool
	Then func(Observed) Plan
}

// Rules returns the whole decision in its order: the first rule that matches wins, and the last always does.
// LRPs are deleted because the spec and the revisions say so; conditions are never read.
func Rules() []Rule {
	return []Rule{
		{"deleted", func(o Observed) bool { return o.Deleted }, deleted},
		{"revision unreadable", func(o Observed) bool { return o.App.Unreadable != "" }, unreadable},
		{"newer revision", func(o Observed) bool { return o.newer() != nil }, newerRevision},
		{"delete what has to go", func(o Observed) bool { return len(o.toDelete()) > 0 }, deleteDoomed},

		{"stopping", func(o Observed) bool { return !o.App.Started && !o.leftover().none() }, stopping},
		{"stopped", func(o Observed) bool { return !o.App.Started }, stopped},

		{"held until drained", Observed.held, held},
		{"name is free soon", Observed.blocked, waitName},
		{"no droplet", func(o Observed) bool { return o.missing() && o.NoDroplet != "" }, noDroplet},
		{"create", Observed.missing, create},
		{"scale", func(o Observed) bool { return o.current() != nil && o.current().Instances != o.wanted() }, scale},
		{"retire older", func(o Observed) bool { _, _, found := o.retire(); return found }, retire},

		{"canary waits", Observed.paused, canaryWaits},
		{"deploying", func(o Observed) bool { return len(o.older()) > 0 }, deploying},
		{"starting", func(o Observed) bool { return o.pods(o.Target()).Ready < o.Desired }, starting},
		{"yielding", Observed.yielding, yielding},
		{"running", func(Observed) bool { return true }, running},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	for _, r := range Rules() {
		if r.When(o) {
			p := r.Then(o)
			p.Rule = r.Name
			if p.Do == nil {
				p.Do = Nothing{}
			}
			p.Draining = drainCondition(o)
			if p.After == 0 {
				p.After = untilTimeout(o)
			}
			return p
		}
	}
	return Plan{Do: Nothing{}}
}

// missing: the current revision has no LRP and needs one.
func (o Observed) missing() bool { return o.current() == nil && o.Desired > 0 }

// blocked: the LRP that is needed cannot be made or used, because an object of its name is there and goes, or is another's.
func (o Observed) blocked() bool {
	if current := o.current(); current != nil {
		return current.Deleting
	}
	if !o.missing() {
		return false
	}
	name := Name(o.ProcessGUID, o.Target())
	for _, l := range o.LRPs {
		if l.Name == name {
			return true
		}
	}
	return o.NameTaken
}

// untilTimeout is when the drain timeout lets the current revision start, or a deployment be through.
func untilTimeout(o Observed) time.Duration {
	left := o.leftover()
	if left.since.IsZero() && o.App.Started {
		left = o.replaced()
	}
	if o.App.DrainTimeout == 0 || left.since.IsZero() || o.expired(left) {
		return 0
	}
	return o.App.DrainTimeout - o.Now.Sub(left.since)
}
