// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"time"

	"github.com/torpor-dev/torpor/local/cloud/process"
	"github.com/torpor-dev/torpor/local/cloud/wire"
)

// state is the power state of an instance, as EC2 names it.
type state string

const (
	pending      state = "pending"
	running      state = "running"
	shuttingDown state = "shutting-down"
	terminated   state = "terminated"
	stopping     state = "stopping"
	stopped      state = "stopped"
)

func (s state) code() int {
	return map[state]int{pending: 0, running: 16, shuttingDown: 32, terminated: 48, stopping: 64, stopped: 80}[s]
}

// verb is what a caller asks of an instance.
type verb string

const (
	start     verb = "start"
	stop      verb = "stop"
	terminate verb = "terminate"
)

// asked returns the state that follows when a caller asks; false means EC2 refuses.
func asked(s state, v verb) (state, bool) {
	switch {
	case v == terminate && s == stopped:
		return terminated, true
	case v == terminate && s == terminated:
		return terminated, true
	case v == terminate:
		return shuttingDown, true
	case v == start && s == stopped:
		return pending, true
	case v == start && (s == pending || s == running):
		return s, true
	case v == stop && s == running:
		return stopping, true
	case v == stop && (s == stopping || s == stopped):
		return s, true
	default:
		return s, false
	}
}

// elapsed returns the state that follows when the latency is over; a settled state stays.
func elapsed(s state) state {
	switch s {
	case pending:
		return running
	case stopping:
		return stopped
	case shuttingDown:
		return terminated
	case running, stopped, terminated:
	}
	return s
}

// latencies are how long an instance takes; nil in an instance means the cloud's.
type latencies struct {
	Start *time.Duration `json:"start,omitempty"`
	Stop  *time.Duration `json:"stop,omitempty"`
}

// over returns the latencies with those that are set in the other replaced.
func (l latencies) over(other latencies) latencies {
	if other.Start != nil {
		l.Start = other.Start
	}
	if other.Stop != nil {
		l.Stop = other.Stop
	}
	return l
}

func (l latencies) of(s state) time.Duration {
	switch {
	case s == pending && l.Start != nil:
		return *l.Start
	case (s == stopping || s == shuttingDown) && l.Stop != nil:
		return *l.Stop
	default:
		return 0
	}
}

// command is what an instance runs while it is running.
type command struct {
	Argv []string          `json:"command"`
	Env  map[string]string `json:"env,omitempty"`
	Log  string            `json:"log,omitempty"`
}

// instance is everything the cloud remembers of one machine. It is a value: changes return a new one.
type instance struct {
	ID          string `json:"id"`
	LaunchIndex int    `json:"launchIndex"`
	Type        string `json:"type"`
	Image       string `json:"image"`
	PrivateIP   string `json:"privateIP"`
	PrivateDNS  string `json:"privateDNS"`
	Spot        bool   `json:"spot,omitempty"`
	// Persistent is set for a spot request that survives a stop.
	Persistent bool              `json:"persistent,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Latency    latencies         `json:"latency"`
	Command    *command          `json:"command,omitempty"`

	State     state     `json:"state"`
	ChangedAt time.Time `json:"changedAt"`
	// Due is when the state ends by itself; zero for a settled one.
	Due              time.Time         `json:"due,omitzero"`
	LaunchTime       time.Time         `json:"launchTime"`
	Reason           *wire.StateReason `json:"reason,omitempty"`
	TransitionReason string            `json:"transitionReason,omitempty"`
	// Process is what runs for the instance, for the next life of the cloud.
	Process process.Identity `json:"process,omitzero"`
}

// moved returns the instance in another state, with everything that follows from the change alone.
func (i instance) moved(to state, now time.Time, cloud latencies) instance {
	// EC2 shows a terminated instance for about an hour.
	const shownTerminated = time.Hour
	i.State, i.ChangedAt, i.Due, i.Reason, i.TransitionReason = to, now, time.Time{}, nil, ""
	switch to {
	case pending:
		i.LaunchTime = now
		i.Reason = &wire.StateReason{Code: string(pending), Message: string(pending)}
		i.Due = now.Add(cloud.over(i.Latency).of(to))
	case stopping, shuttingDown:
		i.Due = now.Add(cloud.over(i.Latency).of(to))
	case terminated:
		i.Due = now.Add(shownTerminated)
	case running, stopped:
	}
	if to == stopped || to == terminated {
		i.Process = process.Identity{}
	}
	return i
}

// address returns the private address and name; a terminated instance has none.
func (i instance) address() (ip, dns string) {
	if i.State == terminated {
		return "", ""
	}
	return i.PrivateIP, i.PrivateDNS
}

// ask returns the instance after a caller's verb, the same one for a verb without effect; false means refused.
func (i instance) ask(v verb, now time.Time, cloud latencies) (instance, bool) {
	to, ok := asked(i.State, v)
	if !ok || to == i.State {
		return i, ok
	}
	after := i.moved(to, now, cloud)
	if v != start {
		after.Reason = &wire.StateReason{Code: wire.ClientUserInitiatedShutdown, Message: wire.ClientUserInitiatedShutdown + ": User initiated shutdown"}
		after.TransitionReason = "User initiated (" + now.UTC().Format("2006-01-02 15:04:05") + " GMT)"
	}
	return after, true
}

// elapse returns the instance at the end of its latency. The reason of a stop stays.
func (i instance) elapse(now time.Time) instance {
	after := i.moved(elapsed(i.State), now, latencies{})
	if after.State != running {
		after.Reason, after.TransitionReason = i.Reason, i.TransitionReason
	}
	return after
}

// fall returns the instance stopped without having been asked to.
func (i instance) fall(code, message string, now time.Time) instance {
	after := i.moved(stopped, now, latencies{})
	after.Reason = &wire.StateReason{Code: code, Message: code + ": " + message}
	after.TransitionReason = code
	return after
}
