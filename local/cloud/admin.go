// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

// addAdminRoutes registers the endpoints for benchmarks, tests and the command line. All bodies are JSON:
//
//	POST   /_local/faults     add a fault
//	DELETE /_local/faults     clear all faults
//	GET    /_local/calls      {"StopInstances": 3, "StopInstances.errors": 1}
//	DELETE /_local/calls      count from zero
//	GET    /_local/instances  list of instances
//	POST   /_local/latency    {"start": "20s", "stop": "5s", "instanceIDs": []}; applies to later transitions only
//	POST   /_local/capacity   {"type": "m5.large", "running": 3}; without running there is no limit
func (c *Cloud) addAdminRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /_local/faults", c.addFault)
	mux.HandleFunc("DELETE /_local/faults", c.clearFaults)
	mux.HandleFunc("GET /_local/calls", c.showCalls)
	mux.HandleFunc("DELETE /_local/calls", c.resetCalls)
	mux.HandleFunc("GET /_local/instances", c.showInstances)
	mux.HandleFunc("POST /_local/latency", c.setLatency)
	mux.HandleFunc("POST /_local/capacity", c.setCapacity)
}

func (c *Cloud) setCapacity(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Type    string `json:"type"`
		Running *int   `json:"running"`
	}
	if err := readJSON(w, r, &asked); err != nil {
		writeRefusal(w, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked.Running == nil {
		delete(c.capacity, asked.Type)
	} else {
		c.capacity[asked.Type] = *asked.Running
	}
	w.WriteHeader(http.StatusNoContent)
}

// jsonDuration is written as "1.5s" in JSON.
type jsonDuration time.Duration

// UnmarshalText reads the text of time.ParseDuration.
func (d *jsonDuration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = jsonDuration(parsed)
	return err
}

func (c *Cloud) addFault(w http.ResponseWriter, r *http.Request) {
	var added injectedFault
	if err := readJSON(w, r, &added); err != nil {
		writeRefusal(w, err)
		return
	}
	if err := added.validate(func(action string) bool { return c.findAction(action) != nil || isOfEKS(action) }); err != nil {
		writeRefusal(w, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, added)
	w.WriteHeader(http.StatusNoContent)
}

func (c *Cloud) clearFaults(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
	c.lookAtAll()
	c.wakeUp()
	w.WriteHeader(http.StatusNoContent)
}

func (c *Cloud) showCalls(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writeJSON(w, http.StatusOK, c.calls)
}

func (c *Cloud) resetCalls(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.calls)
	w.WriteHeader(http.StatusNoContent)
}

type shownInstance struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	State     string            `json:"state"`
	AskedAt   time.Time         `json:"askedAt"`
	ChangedAt time.Time         `json:"changedAt"`
	ListedAt  time.Time         `json:"listedAt"`
	PID       int               `json:"pid"`
	PrivateIP string            `json:"privateIP"`
	Tags      map[string]string `json:"tags"`
}

func (c *Cloud) showInstances(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := []shownInstance{}
	for _, r := range c.state.Reservations {
		for _, id := range r.Instances {
			i := c.state.Instances[id]
			shown = append(shown, shownInstance{
				ID: i.ID, Name: i.Tags["Name"], State: string(i.State), AskedAt: i.AskedAt.UTC(), ChangedAt: i.ChangedAt.UTC(), ListedAt: c.listed[id].at.UTC(),
				PID: i.Process.PID, PrivateIP: i.PrivateIP, Tags: i.Tags,
			})
		}
	}
	writeJSON(w, http.StatusOK, shown)
}

func (c *Cloud) setLatency(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Start       *jsonDuration `json:"start"`
		Stop        *jsonDuration `json:"stop"`
		InstanceIDs []string      `json:"instanceIDs"`
	}
	if err := readJSON(w, r, &asked); err != nil {
		writeRefusal(w, err)
		return
	}
	wanted := powerLatencies{Start: (*time.Duration)(asked.Start), Stop: (*time.Duration)(asked.Stop)}
	for _, latency := range []*time.Duration{wanted.Start, wanted.Stop} {
		if latency != nil && *latency < 0 {
			writeRefusal(w, fmt.Errorf("a latency must not be negative, found %s", *latency))
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.changeLatency(wanted, asked.InstanceIDs); err != nil {
		writeRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// changeLatency changes the latency of the instances with these ids permanently. Without ids, it changes the latency of
// the cloud until the cloud ends.
func (c *Cloud) changeLatency(wanted powerLatencies, ids []string) error {
	if len(ids) == 0 {
		c.latencies = c.latencies.overriddenBy(wanted)
		return nil
	}
	found, err := c.findInstances(ids)
	if err != nil {
		return err
	}
	for n := range found {
		found[n].Latency = found[n].Latency.overriddenBy(wanted)
	}
	return c.saveChange(stateChange{Instances: found}, time.Now())
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	const largestBody = 1 << 20
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("the body must be one JSON object as documented for this endpoint: %w", err)
	}
	return nil
}

func writeRefusal(w http.ResponseWriter, err error) {
	writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has disconnected needs no response.
	_ = json.NewEncoder(w).Encode(answer)
}

// Kinds of faults that affect an instance, and not the response to a call.
const (
	stuckPending  = "stuckPending"
	stuckStopping = "stuckStopping"
	lostStart     = "lostStart"
)

// injectedFault is a failure that a test requests. Faults do not survive a restart of the cloud.
type injectedFault struct {
	// Kind is empty for a fault of a call, or stuckPending, stuckStopping (transitions that end only when the faults
	// are cleared; stuckStopping also blocks terminations) or lostStart (an accepted start falls back to stopped).
	Kind string `json:"kind"`
	// Action limits a fault of calls to one action; empty means every action.
	Action string `json:"action"`
	// InstanceIDs limits the fault to these instances, or to calls whose parameters contain one of them; empty means
	// all.
	InstanceIDs []string `json:"instanceIDs"`
	// Code and Message are the error to return; without a code the call succeeds.
	Code    string `json:"code"`
	Message string `json:"message"`
	// HTTPStatus replaces the usual status of the code.
	HTTPStatus int `json:"httpStatus"`
	// Times is how often the fault occurs; 0 means until it is cleared.
	Times int `json:"times"`
	// Delay delays the response, as "1.5s". The action itself is not delayed.
	Delay jsonDuration `json:"delay"`
}

func (f injectedFault) validate(known func(action string) bool) error {
	if f.Times < 0 || f.Delay < 0 {
		return fmt.Errorf("times and delay must not be negative, found %d and %s", f.Times, time.Duration(f.Delay))
	}
	call := f.Action != "" || f.Code != "" || f.Message != "" || f.HTTPStatus != 0 || f.Delay != 0
	switch f.Kind {
	case "":
		if f.Code == "" && f.Delay == 0 {
			return errors.New("the fault does nothing: set a code, a delay or a kind")
		}
		if f.HTTPStatus != 0 && (f.Code == "" || f.HTTPStatus < http.StatusBadRequest || f.HTTPStatus > 599) {
			return fmt.Errorf("httpStatus must be 400 to 599 and come with a code, found %d and code %q", f.HTTPStatus, f.Code)
		}
		if f.Action != "" && !known(f.Action) {
			return fmt.Errorf("the cloud has no action %q", f.Action)
		}
	case stuckPending, stuckStopping:
		if call || f.Times != 0 {
			return fmt.Errorf("expected only instanceIDs for %s, found other fields; the fault lasts until the faults are cleared", f.Kind)
		}
	case lostStart:
		if call {
			return fmt.Errorf("expected only instanceIDs and times for %s, found other fields", f.Kind)
		}
	default:
		return fmt.Errorf("kind must be empty, %s, %s or %s, found %q", stuckPending, stuckStopping, lostStart, f.Kind)
	}
	return nil
}

func (f injectedFault) concernsInstance(ids ...string) bool {
	return len(f.InstanceIDs) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(f.InstanceIDs, id) })
}

// useCallFault returns the fault of a call and decrements its count; the zero value means no fault. A dry run only
// checks permissions, so it ignores faults with a code other than UnauthorizedOperation.
func (c *Cloud) useCallFault(action string, ids []string, dry bool) injectedFault {
	return c.useFault(func(f injectedFault) bool {
		return f.Kind == "" && (!dry || f.Code == ec2query.UnauthorizedOperation) && (f.Action == "" || f.Action == action) && f.concernsInstance(ids...)
	})
}

func (c *Cloud) isStuck(i instance) bool {
	kind := map[powerState]string{pending: stuckPending, stopping: stuckStopping, shuttingDown: stuckStopping}[i.State]
	return slices.ContainsFunc(c.faults, func(f injectedFault) bool { return kind != "" && f.Kind == kind && f.concernsInstance(i.ID) })
}

// losesStart reports whether a fault lets the accepted start of an instance fall back to stopped, and decrements the
// count of the fault.
func (c *Cloud) losesStart(i instance) bool {
	return c.useFault(func(f injectedFault) bool { return f.Kind == lostStart && f.concernsInstance(i.ID) }).Kind != ""
}

func (c *Cloud) useFault(meant func(injectedFault) bool) injectedFault {
	at := slices.IndexFunc(c.faults, meant)
	if at < 0 {
		return injectedFault{}
	}
	met := c.faults[at]
	switch met.Times {
	case 0:
	case 1:
		c.faults = slices.Delete(c.faults, at, at+1)
	default:
		c.faults[at].Times--
	}
	return met
}

func (f injectedFault) asError() error {
	if f.Code == "" {
		return nil
	}
	message := f.Message
	if message == "" {
		message = "This error was injected by a test."
	}
	return &ec2query.Error{Code: f.Code, Message: message, Status: f.HTTPStatus}
}
