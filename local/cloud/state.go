// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
	"github.com/torpor-dev/torpor/local/cloud/process"
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

// stateAfterRequest returns the state that follows when a caller asks; false means EC2 refuses.
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

// stateAfterLatency returns the state that follows when the latency is over; a settled state stays.
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

// powerLatencies are how long an instance takes; nil in an instance means the cloud's.
type powerLatencies struct {
	Start *time.Duration `json:"start,omitempty"`
	Stop  *time.Duration `json:"stop,omitempty"`
}

// overriddenBy returns the latencies with those that are set in the other replaced.
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
	Latency    powerLatencies    `json:"latency"`
	Command    *machineCommand   `json:"command,omitempty"`

	State     powerState `json:"state"`
	ChangedAt time.Time  `json:"changedAt"`
	// Due is when the state ends by itself; zero for a settled one.
	Due              time.Time             `json:"due,omitzero"`
	LaunchTime       time.Time             `json:"launchTime"`
	Reason           *ec2query.StateReason `json:"reason,omitempty"`
	TransitionReason string                `json:"transitionReason,omitempty"`
	// Process is what runs for the instance, for the next life of the cloud.
	Process process.Identity `json:"process,omitzero"`
}

// inState returns the instance in another state, with everything that follows from the change alone.
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
		i.Process = process.Identity{}
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

// afterRequest returns the instance after a caller's verb, the same one for a verb without effect; false means refused.
func (i instance) afterRequest(v powerVerb, now time.Time, cloud powerLatencies) (instance, bool) {
	to, ok := stateAfterRequest(i.State, v)
	if !ok || to == i.State {
		return i, ok
	}
	after := i.inState(to, now, cloud)
	if v != start {
		after.Reason = &ec2query.StateReason{Code: ec2query.ClientUserInitiatedShutdown, Message: ec2query.ClientUserInitiatedShutdown + ": User initiated shutdown"}
		after.TransitionReason = "User initiated (" + now.UTC().Format("2006-01-02 15:04:05") + " GMT)"
	}
	return after, true
}

// afterLatency returns the instance at the end of its latency. The reason of a stop stays.
func (i instance) afterLatency(now time.Time) instance {
	after := i.inState(stateAfterLatency(i.State), now, powerLatencies{})
	if after.State != running {
		after.Reason, after.TransitionReason = i.Reason, i.TransitionReason
	}
	return after
}

// stoppedUnasked returns the instance stopped without having been asked to.
func (i instance) stoppedUnasked(code, message string, now time.Time) instance {
	after := i.inState(stopped, now, powerLatencies{})
	after.Reason = &ec2query.StateReason{Code: code, Message: code + ": " + message}
	after.TransitionReason = code
	return after
}

type reservation struct {
	ID string `json:"id"`
	// Sequence grows with each reservation; pages are cut along it.
	Sequence    int      `json:"sequence"`
	ClientToken string   `json:"clientToken,omitempty"`
	Digest      string   `json:"digest,omitempty"`
	Instances   []string `json:"instances"`
}

// cloudState is everything the cloud knows, and the content of its file. It is a value: changes return a new one.
type cloudState struct {
	Sequence     int                 `json:"sequence"`
	Reservations []reservation       `json:"reservations"`
	Instances    map[string]instance `json:"instances"`
}

func (l cloudState) withInstances(changed ...instance) cloudState {
	instances := maps.Clone(l.Instances)
	for _, i := range changed {
		instances[i.ID] = i
	}
	l.Instances = instances
	return l
}

// withReservation returns the ledger with one more reservation, of these new instances, and that reservation.
func (l cloudState) withReservation(r reservation, created []instance) (cloudState, reservation) {
	l.Sequence++
	r.Sequence = l.Sequence
	for _, i := range created {
		r.Instances = append(r.Instances, i.ID)
	}
	l.Reservations = append(slices.Clip(l.Reservations), r)
	return l.withInstances(created...), r
}

// withoutInstances returns the ledger with the instances forgotten, and the reservations that become empty.
func (l cloudState) withoutInstances(ids ...string) cloudState {
	instances := maps.Clone(l.Instances)
	for _, id := range ids {
		delete(instances, id)
	}
	var kept []reservation
	for _, r := range l.Reservations {
		r.Instances = slices.DeleteFunc(slices.Clone(r.Instances), func(id string) bool { return slices.Contains(ids, id) })
		if len(r.Instances) > 0 {
			kept = append(kept, r)
		}
	}
	l.Instances, l.Reservations = instances, kept
	return l
}

type stateStore struct {
	dir  string
	lock *os.File
}

// openStore takes the folder for this process alone; the lock ends with the process, however it ends.
func openStore(dir string) (*stateStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the cloud's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cloud's folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another cloud uses the folder %s; end it or choose another folder: %w", dir, err), lock.Close())
	}
	return &stateStore{dir: dir, lock: lock}, nil
}

func (s *stateStore) close() error { return s.lock.Close() }

func (s *stateStore) filePath() string { return filepath.Join(s.dir, "cloud.json") }

func (s *stateStore) loadState() (cloudState, error) {
	known := cloudState{Instances: map[string]instance{}}
	text, err := os.ReadFile(s.filePath())
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return cloudState{}, fmt.Errorf("read the cloud's state: %w", err)
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return cloudState{}, fmt.Errorf("the cloud's state in %s is not the JSON this version writes; move the file away to start with an empty cloud: %w", s.filePath(), err)
	}
	return known, nil
}

// saveState replaces the file as a whole and returns when the new one is on the disk.
func (s *stateStore) saveState(l cloudState) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	next, err := os.OpenFile(s.filePath()+".next", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	// The new file is on the disk before it gets the name: a crash leaves the old state or the new one.
	_, err = next.Write(text)
	err = errors.Join(err, next.Sync(), next.Close())
	if err != nil {
		return fmt.Errorf("write the cloud's state: %w", err)
	}
	if err := os.Rename(next.Name(), s.filePath()); err != nil {
		return fmt.Errorf("replace the cloud's state: %w", err)
	}
	return s.syncDir()
}

func (s *stateStore) syncDir() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("open the cloud's folder: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync the cloud's folder: %w", err)
	}
	return nil
}
