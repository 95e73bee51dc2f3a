// SPDX-License-Identifier: Apache-2.0

package process

import "runtime"

// Starter starts every process from one thread that lives as long as itself: on Linux the death signal of a child
// follows the thread that started it, not the whole parent.
type Starter struct {
	work chan func()
}

// NewStarter returns a starter; the caller closes it.
func NewStarter() *Starter {
	s := &Starter{work: make(chan func())}
	go s.runStarts()
	return s
}

// Close ends the thread and so, on Linux, kills what it started and still runs. Nothing may be started after it.
func (s *Starter) Close() { close(s.work) }

func (s *Starter) runStarts() {
	// Never unlocked: the end of the goroutine is the end of the thread.
	runtime.LockOSThread()
	for start := range s.work {
		start()
	}
}

func (s *Starter) runOnThread(start func() error) error {
	answer := make(chan error, 1)
	s.work <- func() { answer <- start() }
	return <-answer
}
