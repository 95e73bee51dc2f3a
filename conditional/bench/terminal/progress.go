// SPDX-License-Identifier: Apache-2.0

// Package terminal tells a person how far the bench is.
package terminal

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// quiet is how long a person is left without a line.
const quiet = 2 * time.Second

// Progress writes lines with the time since it was made. It is safe for several goroutines.
type Progress struct {
	out    *os.File
	colour bool
	name   string
	began  time.Time

	mu   sync.Mutex
	last time.Time
}

// New returns a progress whose lines carry the name. It has colour only on a terminal, and never with NO_COLOR.
func New(out *os.File, name string, began time.Time) *Progress {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &Progress{out: out, colour: terminal, name: name, began: began}
}

// Say writes a line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked(fmt.Sprintf(format, args...))
}

// Count writes a line if there was none for a while: done of total.
func (p *Progress) Count(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) >= quiet {
		p.sayLocked(fmt.Sprintf("%s: %d of %d", what, done, total))
	}
}

func (p *Progress) sayLocked(text string) {
	p.last = time.Now()
	head := fmt.Sprintf("[%4.0fs] %s:", time.Since(p.began).Seconds(), p.name)
	if p.colour {
		head = "\x1b[2m" + head + "\x1b[0m"
	}
	fmt.Fprintln(p.out, head, text)
}
