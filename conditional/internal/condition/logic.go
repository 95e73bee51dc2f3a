// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"
	"strings"
)

// ChildInput is what is known of one child.
type ChildInput struct {
	Name string
	Now  Status
	Last Status // the last report that was not Unknown
}

func (i *ChildInput) noteReport(s Status) {
	i.Now = s
	if s.State != Unknown {
		i.Last = s
	}
}

func (i *ChildInput) String() string {
	text := i.Name + " is " + i.Now.State.String()
	if i.Now.Message != "" {
		text += ": " + i.Now.Message
	}
	return text
}

// JudgeFunc makes one status of those of all children.
type JudgeFunc func([]ChildInput) Status

// All is Kleene's AND: one False decides, then one Unknown. Its identity is that of all children.
func All(inputs []ChildInput) Status {
	switch {
	case anyInState(inputs, False):
		return combineState(inputs, False)
	case anyInState(inputs, Unknown):
		return combineState(inputs, Unknown)
	}
	var identities []string
	for _, i := range inputs {
		if i.Now.Identity != "" {
			identities = append(identities, i.Now.Identity)
		}
	}
	s := combineState(inputs, True)
	s.Identity = strings.Join(identities, ",")
	return s
}

// Any returns Kleene's OR: one True decides, then one Unknown. Its identity is that of one child which holds, the
// same one until it is False: what comes besides it, and what is Unknown for a while, must not restart a group.
func Any() JudgeFunc {
	relied := -1
	return func(inputs []ChildInput) Status {
		switch {
		case anyInState(inputs, True):
			// The last known state counts: a child that becomes Unknown for a while must not change the identity.
			if relied < 0 || inputs[relied].Last.State != True {
				relied = slices.IndexFunc(inputs, func(i ChildInput) bool { return i.Now.State == True })
			}
			s := combineState(inputs, True)
			s.Identity = inputs[relied].Last.Identity
			return s
		case anyInState(inputs, Unknown):
			return combineState(inputs, Unknown)
		}
		return combineState(inputs, False)
	}
}

// Not inverts one child. A child that does not hold has no identity.
func Not(inputs []ChildInput) Status {
	s := combineState(inputs, inputs[0].Now.State)
	switch s.State {
	case True:
		s.State = False
	case False:
		s.State = True
	case Unknown:
	}
	return s
}

func anyInState(inputs []ChildInput, state State) bool {
	return slices.ContainsFunc(inputs, func(i ChildInput) bool { return i.Now.State == state })
}

// combineState names the children in the state that decides.
func combineState(inputs []ChildInput, state State) Status {
	var reasons, messages []string
	for _, i := range inputs {
		if i.Now.State == state {
			reasons, messages = append(reasons, i.Now.Reason), append(messages, i.String())
		}
	}
	reasons, messages = sortUnique(reasons), sortUnique(messages)
	s := Status{State: state, Reason: "Several", Message: strings.Join(messages, "; ")}
	if len(reasons) == 1 {
		s.Reason = reasons[0]
	}
	return s
}

func sortUnique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
