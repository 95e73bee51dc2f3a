// SPDX-License-Identifier: Apache-2.0

package page

import "slices"

// Actions on a switch. A skip keeps an object running although Slumbers would stop it.
const (
	stopVerb   = "stop"
	startVerb  = "start"
	extendVerb = "extend"
	skipVerb   = "skip"
)

// listVerbs returns the actions that apply to a switch. The first action is that of the button in the switch's row.
func listVerbs(s *listedSwitch) []string {
	parts := s.kind.PartNames()
	switch isSwitch := slices.Contains(parts, s.Part); {
	case s.IsAsleepBySchedule():
		return []string{skipVerb}
	case !isSwitch:
		return nil
	case s.Stopped && s.IsAsked:
		return []string{startVerb, extendVerb}
	case s.Stopped:
		return []string{startVerb}
	case len(parts) > 1: // Slumbers stop the whole object, not its parts.
		return []string{stopVerb}
	default:
		return []string{stopVerb, skipVerb}
	}
}

// titleOf returns the label of an action's button.
func titleOf(verb string) markup {
	switch verb {
	case stopVerb:
		return "Stop"
	case startVerb:
		return "Start"
	case extendVerb:
		return "Extend"
	case skipVerb:
		return "Skip"
	default:
		return ""
	}
}
