// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"time"
)

const attemptLimit = 10 * time.Second

func (r *run) step(title string) { r.story.Step(title) }

func (r *run) saw(format string, args ...any) { r.story.Saw(format, args...) }

func (r *run) note(format string, args ...any) { r.story.Note(format, args...) }

func (r *run) poll(what string, limit time.Duration, f func(context.Context) error) error {
	return r.story.Poll(r.ctx, what, limit, f)
}
