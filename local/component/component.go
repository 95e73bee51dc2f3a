// SPDX-License-Identifier: Apache-2.0

// Package component runs the components of a cluster in one process, each with a separate context, so that they can
// be stopped in order.
package component

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errEndedEarly = errors.New("expected the component to run until it is stopped")

// Component is a component that runs in a separate goroutine.
type Component struct {
	name        string
	ready, done chan struct{}
	cancel      context.CancelFunc
	// err is the error with which the component ended, once done is closed.
	err error
}

// Start starts a component, which calls ready at most once.
func Start(ctx context.Context, name string, run func(ctx context.Context, ready func()) error) *Component {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &Component{name: name, ready: make(chan struct{}), done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(c.done)
		c.err = run(own, func() { close(c.ready) })
	}()
	return c
}

// AwaitReady returns nil when the component is ready, or an error if the component or ctx has ended.
func (c *Component) AwaitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.done:
		return c.endedEarly()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// EndedEarly returns an error if the component has ended, or nil if it is running.
func (c *Component) EndedEarly() error {
	select {
	case <-c.done:
		return c.endedEarly()
	default:
		return nil
	}
}

func (c *Component) endedEarly() error {
	return fmt.Errorf("%s ended unexpectedly: %w", c.name, errors.Join(c.err, errEndedEarly))
}

// Stop ends the component within a limit, and returns its error. It does nothing for a nil component, which was never
// started.
func (c *Component) Stop(limit time.Duration) error {
	if c == nil {
		return nil
	}
	c.cancel()
	select {
	case <-c.done:
		return c.err
	case <-time.After(limit):
		return fmt.Errorf("expected %s to stop within %s, found it still running", c.name, limit)
	}
}

// AwaitFirstExit waits until ctx ends. It returns an error if a component ends earlier.
func AwaitFirstExit(ctx context.Context, components ...*Component) error {
	failed := make(chan error, len(components))
	for _, c := range components {
		go func() {
			<-c.done
			failed <- c.endedEarly()
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
