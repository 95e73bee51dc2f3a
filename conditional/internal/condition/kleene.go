// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"
	"strings"
)

// Input is what is known of one child.
type Input struct {
	Name string
	Now  Status
	Last Status // the last report that was not Unknown
}

func (i *Input) take(s Status) {
	i.Now = s
	if s.State != Unknown {
		i.Last = s
	}
}

func (i *Input) String() string {
	text := i.Name + " is " + i.Now.State.String()
	if i.Now.Message != "" {
		text += ": " + i.Now.Message
	}
	return text
}

// Judge makes one status of those of all children.
type Judge func([]Input) Status

// All is Kleene's AND: one False decides, then one Unknown. Its identity is that of all children.
func All(inputs []Input) Status {
	switch {
	case some(inputs, False):
		return because(inputs, False)
	case some(inputs, Unknown):
		return because(inputs, Unknown)
	}
	var identities []string
	for _, i := range inputs {
		if i.Now.Identity != "" {
			identities = append(identities, i.Now.Identity)
		}
	}
	s := because(inputs, True)
	s.Identity = strings.Join(identities, ",")
	return s
}

// Any returns Kleene's OR: one True decides, then one Unknown. Its identity is that of one child which holds, the
// same one until it is False: what comes besides it, and what is Unknown for a while, must not restart a group.
func Any() Judge {
	relied := -1
	return func(inputs []Input) Status {
		switch {
		case some(inputs, True):
			if relied < 0 || inputs[relied].Last.State != True {
				relied = slices.IndexFunc(inputs, func(i Input) bool { return i.Now.State == True })
			}
			s := because(inputs, True)
			s.Identity = inputs[relied].Last.Identity
			return s
		case some(inputs, Unknown):
			return because(inputs, Unknown)
		}
		return because(inputs, False)
	}
}

// Not turns one child round. What is not there has no identity.
func Not(inputs []Input) Status {
	s := because(inputs, inputs[0].Now.State)
	switch s.State {
	case True:
		s.State = False
	case False:
		s.State = True
	case Unknown:
	}
	return s
}

func some(inputs []Input, state State) bool {
	return slices.ContainsFunc(inputs, func(i Input) bool { return i.Now.State == state })
}

// because names the children in the state that decides.
func because(inputs []Input, state State) Status {
	var reasons, messages []string
	for _, i := range inputs {
		if i.Now.State == state {
			reasons, messages = append(reasons, i.Now.Reason), append(messages, i.String())
		}
	}
	reasons, messages = sorted(reasons), sorted(messages)
	s := Status{State: state, Reason: "Several", Message: strings.Join(messages, "; ")}
	if len(reasons) == 1 {
		s.Reason = reasons[0]
	}
	return s
}

func sorted(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
