// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/wire"
)

// Handler serves the EC2 Query API on / and the admin endpoints under /_local/. Serve it on a loopback address only.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", c.serve)
	mux.HandleFunc("GET /{$}", c.serve)
	c.addAdmin(mux)
	return mux
}

func (c *Cloud) action(name string) func(wire.Request, time.Time) (wire.Body, error) {
	return map[string]func(wire.Request, time.Time) (wire.Body, error){
		"CreateTags":         c.createTags,
		"DeleteTags":         c.deleteTags,
		"DescribeInstances":  c.describeInstances,
		"DescribeTags":       c.describeTags,
		"RunInstances":       c.runInstances,
		"StartInstances":     c.startInstances,
		"StopInstances":      c.stopInstances,
		"TerminateInstances": c.terminateInstances,
	}[name]
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	q, err := wire.Read(w, r)
	if err != nil {
		wire.WriteError(w, err)
		return
	}
	body, delay, err := c.call(q, r.Header.Get("Authorization"), time.Now())
	wait(r.Context(), delay)
	if err != nil {
		wire.WriteError(w, err)
		return
	}
	wire.WriteAnswer(w, q.Action, body)
}

// call does and counts one call. What it changed is on the disk when it returns.
func (c *Cloud) call(q wire.Request, authorization string, now time.Time) (wire.Body, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := q.Action
	if c.action(q.Action) == nil {
		counted = "(unknown)"
	}
	c.calls[counted]++
	body, delay, err := c.do(q, authorization, now)
	if err != nil {
		c.calls[counted+".errors"]++
	}
	return body, delay, err
}

func (c *Cloud) do(q wire.Request, authorization string, now time.Time) (wire.Body, time.Duration, error) {
	if c.closed {
		return nil, 0, wire.Errorf(wire.Unavailable, "The cloud is closed.")
	}
	if err := c.admit(authorization, now); err != nil {
		return nil, 0, err
	}
	if q.Action == "" {
		return nil, 0, wire.Errorf(wire.MissingParameter, "The request must contain the parameter Action")
	}
	act := c.action(q.Action)
	if act == nil {
		return nil, 0, wire.Errorf(wire.InvalidAction, "The action %s is not valid for this web service.", q.Action)
	}
	dry, err := q.Flag("DryRun")
	if err != nil {
		return nil, 0, err
	}
	if dry {
		return nil, 0, wire.Errorf(wire.DryRunOperation, "Request would have succeeded, but DryRun flag is set.")
	}
	met := c.strikeCall(q.Action, slices.Concat(q.List("InstanceId"), q.List("ResourceId")))
	delay := time.Duration(met.Delay)
	if err := met.err(); err != nil {
		return nil, delay, err
	}
	body, err := act(q, now)
	return body, delay, err
}

// wait returns after the delay, or when the caller has left.
func wait(ctx context.Context, delay time.Duration) {
	if delay == 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
