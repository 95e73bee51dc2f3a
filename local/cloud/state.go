// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
	"github.com/torpor-dev/torpor/local/cloud/machineprocess"
)

type powerState string

const (
	pending      powerState = "pending"
	running      powerState = "running"
	shuttingDown powerState = "shutting-down"
	terminated   powerState = "terminated"
	stopping     powerState = "stopping"
	stopped      powerState = "stopped"
)

func (s powerState) ec2Code() int {
	return map[powerState]int{pending: 0, running: 16, shuttingDown: 32, terminated: 48, stopping: 64, stopped: 80}[s]
}

type powerVerb string

const (
	start     powerVerb = "start"
	stop      powerVerb = "stop"
	terminate powerVerb = "terminate"
)

// stateAfterRequest returns the state of an instance after a start, stop or termination. The second result is false if
// EC2 refuses the verb.
func stateAfterRequest(s powerState, v powerVerb) (powerState, bool) {
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

// stateAfterLatency returns the state after the latency of a transition; a settled state does not change.
func stateAfterLatency(s powerState) powerState {
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

// powerLatencies are the durations of an instance's transitions. If a duration is nil, the duration of the cloud is
// used.
type powerLatencies struct {
	Start *time.Duration `json:"start,omitempty"`
	Stop  *time.Duration `json:"stop,omitempty"`
}

// overriddenBy returns the latencies, in which each duration that is set in other replaces the existing duration.
func (l powerLatencies) overriddenBy(other powerLatencies) powerLatencies {
	if other.Start != nil {
		l.Start = other.Start
	}
	if other.Stop != nil {
		l.Stop = other.Stop
	}
	return l
}

func (l powerLatencies) forState(s powerState) time.Duration {
	switch {
	case s == pending && l.Start != nil:
		return *l.Start
	case (s == stopping || s == shuttingDown) && l.Stop != nil:
		return *l.Stop
	default:
		return 0
	}
}

type machineCommand struct {
	Argv []string          `json:"command"`
	Env  map[string]string `json:"env,omitempty"`
	Log  string            `json:"log,omitempty"`
}

// instance is everything that the cloud stores about one machine. Methods that change an instance return a new value.
type instance struct {
	ID          string `json:"id"`
	LaunchIndex int    `json:"launchIndex"`
	Type        string `json:"type"`
	Image       string `json:"image"`
	PrivateIP   string `json:"privateIP"`
	PrivateDNS  string `json:"privateDNS"`
	Spot        bool   `json:"spot,omitempty"`
	// Persistent is true for a spot instance whose request survives a stop.
	Persistent bool `json:"persistent,omitempty"`
	// StopProtected is EC2's attribute disableApiStop.
	StopProtected bool              `json:"stopProtected,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	Latency       powerLatencies    `json:"latency"`
	Command       *machineCommand   `json:"command,omitempty"`

	State     powerState `json:"state"`
	ChangedAt time.Time  `json:"changedAt"`
	// AskedAt is the time at which a caller last changed the state.
	AskedAt time.Time `json:"askedAt,omitzero"`
	// Due is the time at which the transition ends, or a terminated instance is forgotten; zero for other states.
	Due              time.Time             `json:"due,omitzero"`
	LaunchTime       time.Time             `json:"launchTime"`
	Reason           *ec2query.StateReason `json:"reason,omitempty"`
	TransitionReason string                `json:"transitionReason,omitempty"`
	// Process identifies the instance's process for the next process of the cloud.
	Process machineprocess.Identity `json:"process,omitzero"`

	// reservation is the sequence number of the instance's reservation.
	reservation int
}

// inState returns the instance in another state, and updates all fields that depend on the state.
func (i instance) inState(to powerState, now time.Time, cloud powerLatencies) instance {
	// EC2 shows a terminated instance for about an hour.
	const shownTerminated = time.Hour
	i.State, i.ChangedAt, i.Due, i.Reason, i.TransitionReason = to, now, time.Time{}, nil, ""
	switch to {
	case pending:
		i.LaunchTime = now
		i.Reason = &ec2query.StateReason{Code: string(pending), Message: string(pending)}
		i.Due = now.Add(cloud.overriddenBy(i.Latency).forState(to))
	case stopping, shuttingDown:
		i.Due = now.Add(cloud.overriddenBy(i.Latency).forState(to))
	case terminated:
		i.Due = now.Add(shownTerminated)
	case running, stopped:
	}
	if to == stopped || to == terminated {
		i.Process = machineprocess.Identity{}
	}
	return i
}

// privateAddress returns the private address and name; a terminated instance has none.
func (i instance) privateAddress() (ip, dns string) {
	if i.State == terminated {
		return "", ""
	}
	return i.PrivateIP, i.PrivateDNS
}

// afterRequest returns the instance after a caller's verb, unchanged if the verb has no effect. The second result is
// false if the verb is refused.
func (i instance) afterRequest(v powerVerb, now time.Time, cloud powerLatencies) (instance, bool) {
	to, ok := stateAfterRequest(i.State, v)
	if !ok || to == i.State {
		return i, ok
	}
	after := i.inState(to, now, cloud)
	after.AskedAt = now
	if v != start {
		after.Reason = &ec2query.StateReason{Code: ec2query.ClientUserInitiatedShutdown, Message: ec2query.ClientUserInitiatedShutdown + ": User initiated shutdown"}
		after.TransitionReason = "User initiated (" + now.UTC().Format("2006-01-02 15:04:05") + " GMT)"
	}
	return after, true
}

// afterLatency returns the instance at the end of its transition. It keeps the reason for a stop.
func (i instance) afterLatency(now time.Time) instance {
	after := i.inState(stateAfterLatency(i.State), now, powerLatencies{})
	if after.State != running {
		after.Reason, after.TransitionReason = i.Reason, i.TransitionReason
	}
	return after
}

// stoppedUnasked returns the instance after a stop that no caller has requested.
func (i instance) stoppedUnasked(code, message string, now time.Time) instance {
	after := i.inState(stopped, now, powerLatencies{})
	after.Reason = &ec2query.StateReason{Code: code, Message: code + ": " + message}
	after.TransitionReason = code
	return after
}

type reservation struct {
	ID string `json:"id"`
	// Sequence increases with each reservation; pages are in this order.
	Sequence    int      `json:"sequence"`
	ClientToken string   `json:"clientToken,omitempty"`
	Digest      string   `json:"digest,omitempty"`
	Instances   []string `json:"instances"`
}

// cloudState is the whole state of the cloud. Its exported fields are the first line of its file.
type cloudState struct {
	Sequence     int                 `json:"sequence"`
	Reservations []reservation       `json:"reservations"`
	Instances    map[string]instance `json:"instances"`
	// Groups are the Auto Scaling groups, by name.
	Groups map[string]scalingGroup `json:"groups,omitempty"`

	// byTagKey maps a tag key to the ids of the instances with such a tag.
	byTagKey map[string]map[string]bool
	// taken contains the addresses in use; all addresses below lowestFree are in use.
	taken      map[string]bool
	lowestFree int
}

// stateChange is one line of the cloud's file; it takes effect as a whole.
type stateChange struct {
	// Reservation is the reservation of the instances, if they are new.
	Reservation *reservation `json:"reservation,omitempty"`
	// Instances replace the stored instances with the same ids.
	Instances []instance `json:"instances,omitempty"`
	// Forgotten are instances that are no longer shown.
	Forgotten []string `json:"forgotten,omitempty"`
	// Groups replace the stored groups with the same names.
	Groups []scalingGroup `json:"groups,omitempty"`
}

func newState() *cloudState {
	return &cloudState{Instances: map[string]instance{}, Groups: map[string]scalingGroup{}, byTagKey: map[string]map[string]bool{}, taken: map[string]bool{}, lowestFree: 1}
}

// newReservation returns the next reservation, with these new instances.
func (s *cloudState) newReservation(r reservation, created []instance) *reservation {
	r.Sequence = s.Sequence + 1
	for _, i := range created {
		r.Instances = append(r.Instances, i.ID)
	}
	return &r
}

// buildIndexes computes the unexported fields from the exported ones.
func (s *cloudState) buildIndexes() {
	for _, r := range s.Reservations {
		for _, id := range r.Instances {
			i := s.Instances[id]
			i.reservation = r.Sequence
			s.Instances[id] = i
			s.addToIndexes(i)
		}
	}
}

func (s *cloudState) apply(c stateChange) {
	if c.Reservation != nil {
		s.Sequence = c.Reservation.Sequence
		s.Reservations = append(s.Reservations, *c.Reservation)
	}
	for _, i := range c.Instances {
		if c.Reservation != nil {
			i.reservation = c.Reservation.Sequence
		} else {
			i.reservation = s.Instances[i.ID].reservation
		}
		s.removeFromIndexes(s.Instances[i.ID])
		s.Instances[i.ID] = i
		s.addToIndexes(i)
	}
	for _, g := range c.Groups {
		s.Groups[g.Name] = g
	}
	for _, id := range c.Forgotten {
		i, ok := s.Instances[id]
		if !ok {
			continue
		}
		s.removeFromIndexes(i)
		delete(s.Instances, id)
		delete(s.taken, i.PrivateIP)
		s.lowestFree = 1
		s.shrinkReservation(i)
	}
}

func (s *cloudState) shrinkReservation(i instance) {
	at := s.findReservation(i.reservation)
	r := &s.Reservations[at]
	r.Instances = slices.DeleteFunc(slices.Clone(r.Instances), func(id string) bool { return id == i.ID })
	if len(r.Instances) == 0 {
		s.Reservations = slices.Delete(s.Reservations, at, at+1)
	}
}

// findReservation returns the index of the first reservation with this sequence number or a higher one.
func (s *cloudState) findReservation(sequence int) int {
	at, _ := slices.BinarySearchFunc(s.Reservations, sequence, func(r reservation, sequence int) int { return cmp.Compare(r.Sequence, sequence) })
	return at
}

func (s *cloudState) addToIndexes(i instance) {
	s.taken[i.PrivateIP] = true
	for key := range i.Tags {
		if s.byTagKey[key] == nil {
			s.byTagKey[key] = map[string]bool{}
		}
		s.byTagKey[key][i.ID] = true
	}
}

func (s *cloudState) removeFromIndexes(i instance) {
	for key := range i.Tags {
		delete(s.byTagKey[key], i.ID)
		if len(s.byTagKey[key]) == 0 {
			delete(s.byTagKey, key)
		}
	}
}

// freeAddresses returns the lowest addresses of a network that no instance has. Terminated instances keep their
// addresses as long as they are shown.
func (s *cloudState) freeAddresses(network string, count int) []string {
	var free []string
	for n := s.lowestFree; n < 255*256 && len(free) < count; n++ {
		address := fmt.Sprintf("%s.%d.%d", network, n/256, n%256)
		switch isHost := n%256 != 0 && n%256 != 255; {
		case isHost && !s.taken[address]:
			free = append(free, address)
		case n == s.lowestFree:
			s.lowestFree++
		}
	}
	return free
}
