// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// addAdminRoutes serves what benchmarks, tests and the command line turn and read. All of it is JSON:
//
//	POST   /_local/faults     add a fault
//	DELETE /_local/faults     clear all faults
//	GET    /_local/calls      {"StopInstances": 3, "StopInstances.errors": 1}
//	DELETE /_local/calls      count from zero
//	GET    /_local/instances  list of instances
//	POST   /_local/latency    {"start": "20s", "stop": "5s", "instanceIDs": []}; only coming transitions change
func (c *Cloud) addAdminRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /_local/faults", c.addFault)
	mux.HandleFunc("DELETE /_local/faults", c.clearFaults)
	mux.HandleFunc("GET /_local/calls", c.showCalls)
	mux.HandleFunc("DELETE /_local/calls", c.resetCalls)
	mux.HandleFunc("GET /_local/instances", c.showInstances)
	mux.HandleFunc("POST /_local/latency", c.setLatency)
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
	if err := added.validate(func(action string) bool { return c.findAction(action) != nil }); err != nil {
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

// shownInstance is an instance as /_local/instances lists it.
type shownInstance struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	State     string            `json:"state"`
	ChangedAt time.Time         `json:"changedAt"`
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
				ID: i.ID, Name: i.Tags["Name"], State: string(i.State), ChangedAt: i.ChangedAt.UTC(),
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

// changeLatency changes the named instances for good, or without names the cloud until it ends.
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
	return c.saveChanges(c.state.withInstances(found...), found...)
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	const largestBody = 1 << 20
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("the body must be one JSON object as the documentation of this endpoint shows: %w", err)
	}
	return nil
}

func writeRefusal(w http.ResponseWriter, err error) {
	writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has left needs no answer.
	_ = json.NewEncoder(w).Encode(answer)
}
