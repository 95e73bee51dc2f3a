// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

const (
	// maxStreams limits the number of streams of all callers. maxStreamsOfCaller limits the streams of one caller,
	// which may have several windows.
	maxStreams, maxStreamsOfCaller = 256, 6
	// coalesceTime is the minimum time between two events. settleTime is the minimum time for which changes are
	// collected.
	coalesceTime, settleTime = time.Second, 50 * time.Millisecond
	// rightsLifetime is the time after which the token and the rights of a caller are checked again.
	rightsLifetime = 30 * time.Second
	// heartbeat prevents proxies from closing an idle connection, and updates rows that change only with time.
	heartbeat = 15 * time.Second
	// writeTimeout closes a stream whose client does not read.
	writeTimeout = 10 * time.Second
	// maxStreamAge closes a stream. The browser opens a new one.
	maxStreamAge = 30 * time.Minute
)

// streamSlots counts the open streams per user.
type streamSlots struct {
	metrics *Metrics

	mu    sync.Mutex
	total int
	of    map[string]int
}

func newStreamSlots(m *Metrics) *streamSlots { return &streamSlots{metrics: m, of: map[string]int{}} }

// take reserves a slot and returns the function that releases it. ok is false if no slot is free.
func (s *streamSlots) take(user string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxStreams || s.of[user] >= maxStreamsOfCaller {
		s.metrics.refused.Inc()
		return nil, false
	}
	s.total++
	s.of[user]++
	s.metrics.streams.Inc()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.metrics.streams.Dec()
		s.total--
		if s.of[user]--; s.of[user] == 0 {
			delete(s.of, user)
		}
	}, true
}

// streamRow is a row of an event. HTML is empty if the browser already has the row.
type streamRow struct {
	Key  string `json:"key"`
	Sum  string `json:"sum"`
	HTML string `json:"html,omitempty"`
}

// streamEvent describes the current page: all rows in order, and the other parts that have changed.
type streamEvent struct {
	Rows  []streamRow       `json:"rows"`
	Parts map[string]string `json:"parts,omitempty"`
}

// stream sends changes to the page to one browser.
type stream struct {
	*Server
	request *http.Request
	writer  http.ResponseWriter
	control *http.ResponseController
	query   viewQuery
	caller  *authorization.Caller
	sees    *visibility
	// rightsUntil is the time at which the token and the rights are checked again.
	rightsUntil time.Time
	// sums, order and parts describe the browser's current content: the checksums of the rows, the order of their keys,
	// and the checksums of the other parts.
	sums, parts map[string]string
	order       []string
}

func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	// An error is not rendered as a page, because the browser's script reads only the status.
	st := &stream{Server: s, request: r, writer: w, control: http.NewResponseController(w), query: parseViewQuery(r.URL.Query()), sums: map[string]string{}, parts: map[string]string{}}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if err := st.renewRights(ctx); err != nil {
		status, text := describeError(err)
		if errors.Is(err, errNotLoggedIn) {
			status, text = http.StatusUnauthorized, err.Error()
		}
		http.Error(w, text, status)
		return
	}
	defer func() { st.caller.Close() }()
	release, ok := s.streams.take(st.caller.Name)
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "expected fewer open pages, found too many; close some", http.StatusTooManyRequests)
		return
	}
	defer release()
	// A stream lasts longer than the read timeout of requests.
	if err := st.control.SetReadDeadline(time.Time{}); err != nil {
		s.Log.Error(err, "a stream of the page cannot be kept open")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if err := st.run(ctx); err != nil {
		s.Log.V(1).Info("a stream of the page ended", "reason", err.Error())
	}
}

// renewRights checks the token and the rights again, so a caller whose access was revoked receives no further changes.
func (st *stream) renewRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	caller, err := st.identify(ctx, st.request)
	if err != nil {
		return err
	}
	if st.caller != nil {
		st.caller.Close()
	}
	st.caller = caller
	if st.sees, err = reviewVisibility(ctx, caller, st.inventory, st.query); err != nil {
		return err
	}
	st.rightsUntil = st.Clock.Now().Add(rightsLifetime)
	return nil
}

// isLoggedOut reports whether the caller has to log in with another token because of the error.
func isLoggedOut(err error) bool {
	return errors.Is(err, errNotLoggedIn) || apierrors.HasStatus(err, http.StatusUnauthorized) || k8serrors.IsUnauthorized(err)
}

// run sends the current page and then its changes, until the browser disconnects or the stream is maxStreamAge old.
func (st *stream) run(ctx context.Context) error {
	end := st.Clock.NewTimer(maxStreamAge)
	defer end.Stop()
	beat := st.Clock.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		changed := st.inventory.changeChannel()
		if !st.Clock.Now().Before(st.rightsUntil) {
			err := st.renewRights(ctx)
			if isLoggedOut(err) {
				return errors.Join(err, st.send("event: ended\ndata: {}\n\n"))
			}
			if err != nil {
				return err // The browser will reconnect.
			}
		}
		if err := st.sendChanges(ctx); err != nil {
			return err
		}
		sent := st.Clock.Now()
		select {
		case <-changed:
		case <-beat.C():
		case <-end.C():
			return nil
		case <-ctx.Done():
			return nil
		}
		// Collect changes in order to send them in one event. This takes settleTime if the last event is long ago, and
		// otherwise up to coalesceTime.
		gather := st.Clock.NewTimer(max(settleTime, coalesceTime-st.Clock.Since(sent)))
		select {
		case <-gather.C():
		case <-ctx.Done():
		}
		gather.Stop()
	}
}

// sendChanges sends the changed parts of the page, or a comment if nothing has changed.
func (st *stream) sendChanges(ctx context.Context) error {
	if err := st.sees.reviewPlaces(ctx, st.inventory, st.query); err != nil {
		return err
	}
	v := st.views.get(st.inventory, st.sees, st.query, st.Clock.Now()).withButtons(ctx, st.sees)
	event := st.compare(v)
	if event == nil {
		return st.send(": nothing has changed\n\n")
	}
	if err := st.limitWrite(); err != nil {
		return err
	}
	// The encoder ends the line. It uses buffers from a pool that all streams share, because the first event may
	// contain a hundred rows.
	_, err := io.WriteString(st.writer, "data: ")
	if err = errors.Join(err, json.NewEncoder(st.writer).Encode(event)); err != nil {
		return fmt.Errorf("send the page: %w", err)
	}
	return st.send("\n")
}

// compare returns the parts of a page that the browser does not have yet, or nil if the browser has all parts.
func (st *stream) compare(v view) *streamEvent {
	event := &streamEvent{Rows: []streamRow{}, Parts: map[string]string{}}
	sums, order, isChanged := map[string]string{}, []string{}, false
	for _, r := range v.Rows {
		row := streamRow{Key: r.Key, Sum: r.Sum}
		if st.sums[r.Key] != r.Sum {
			row.HTML, isChanged = string(r.html()), true
		}
		sums[r.Key] = r.Sum
		order = append(order, r.Key)
		event.Rows = append(event.Rows, row)
	}
	isChanged = isChanged || !slices.Equal(order, st.order)
	st.sums, st.order = sums, order
	for name, rendered := range map[string]markup{
		"summary": renderSummary(v), "columns": renderColumns(v), "pager": renderPager(v), "empty": renderEmpty(v),
	} {
		if sum := checksum([]byte(rendered)); st.parts[name] != sum {
			st.parts[name], event.Parts[name], isChanged = sum, string(rendered), true
		}
	}
	if !isChanged {
		return nil
	}
	return event
}

// limitWrite sets the deadline for the next writes.
func (st *stream) limitWrite() error {
	if err := st.control.SetWriteDeadline(st.Clock.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("limit a write: %w", err)
	}
	return nil
}

// send writes a text and flushes the buffer.
func (st *stream) send(text string) error {
	if err := st.limitWrite(); err != nil {
		return err
	}
	if _, err := io.WriteString(st.writer, text); err != nil {
		return fmt.Errorf("send the page: %w", err)
	}
	if err := st.control.Flush(); err != nil {
		return fmt.Errorf("send the page: %w", err)
	}
	return nil
}
