// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/decision"
)

// TestChangesAreLogged captures the log of a pass that reports a requested stop and an event. Values that users
// write are truncated.
func TestChangesAreLogged(t *testing.T) {
	t.Parallel()
	asked := decision.Request{Requester: "alice@example.com", Reason: "no budget", Until: "2026-11-27T06:00:00Z"}
	const keys = `"requester"="alice@example.com" "reason"="no budget" "until"="2026-11-27T06:00:00Z"`
	for name, row := range map[string]struct {
		out  FollowUp
		want []string
	}{
		"a requested stop is logged before the events of the pass": {
			FollowUp{
				Changes: []decision.Change{{What: "Stop requested", Part: "machines", Request: asked}}, Request: asked,
				Events: []decision.Event{{Reason: "Stopping", Note: "Stopping cluster machines"}},
			},
			[]string{
				`"level"=0 "msg"="Stop requested" "part"="machines" ` + keys,
				`"level"=0 "msg"="Stopping cluster machines" "event"="Stopping" "warning"=false ` + keys,
			},
		},
		"unknown requester: the log line lacks the key requester": {
			FollowUp{Changes: []decision.Change{{What: "Start requested"}}, Events: []decision.Event{{Reason: "Running", Note: "Runs", Warning: true}}},
			[]string{`"level"=0 "msg"="Start requested"`, `"level"=0 "msg"="Runs" "event"="Running" "warning"=true`},
		},
		"long reason of a stop: truncated": {
			FollowUp{Changes: []decision.Change{{What: "Stop requested", Request: decision.Request{Reason: strings.Repeat("ä", 1000)}}}},
			[]string{`"level"=0 "msg"="Stop requested" "reason"="` + strings.Repeat("ä", maxLoggedValue/2) + `"`},
		},
		"line break in the reason of a stop: escaped": {
			FollowUp{Changes: []decision.Change{{What: "Stop requested", Request: decision.Request{Reason: "a\nb"}}}},
			[]string{`"level"=0 "msg"="Stop requested" "reason"="a\nb"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
			server, events := &fakeServer{}, eventList{}
			pass := newPodPass(server, &events)
			pass.Report = func(obj *corev1.Pod, _, _ int, _ *RefusedError) FollowUp {
				obj.Status.Message = "changed"
				return row.out
			}
			if _, err := pass.Reconcile(ctx, podRequest); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, lines); diff != "" {
				t.Errorf("log (-want +found):\n%s", diff)
			}
		})
	}
}

// TestLostRacesAreNotLogged has a status write meet a conflict: only the next pass logs the change.
func TestLostRacesAreNotLogged(t *testing.T) {
	t.Parallel()
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	var events eventList
	pass := newPodPass(&fakeServer{stored: 1}, &events)
	pass.Report = func(obj *corev1.Pod, _, _ int, _ *RefusedError) FollowUp {
		obj.Status.Message = "changed"
		return FollowUp{Changes: []decision.Change{{What: "Stop requested"}}}
	}
	if _, err := pass.Reconcile(ctx, podRequest); err != nil || len(lines) > 0 {
		t.Errorf("expected no line and no error, found %q and %v", lines, err)
	}
}
