// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server is an API server with one Pod and a cache that may be behind it.
type server struct {
	client.Client
	stored, cached int
	gone           bool
	refuse         error
	patches        []string
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.gone {
		return k8serrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	}
	*obj.(*corev1.Pod) = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: fmt.Sprint(s.cached)}}
	return nil
}

func (s *server) Status() client.SubResourceWriter { return statusWriter{server: s} }

type statusWriter struct {
	client.SubResourceWriter
	server *server
}

// Patch implements client.SubResourceWriter.
func (s statusWriter) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if s.server.refuse != nil {
		return s.server.refuse
	}
	if !strings.Contains(string(data), fmt.Sprintf(`"resourceVersion":"%d"`, s.server.stored)) {
		return k8serrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("outdated"))
	}
	s.server.patches = append(s.server.patches, string(data))
	s.server.stored++
	obj.SetResourceVersion(fmt.Sprint(s.server.stored))
	return nil
}

// told is what was emitted.
type told []string

func (l *told) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*l = append(*l, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

func TestReconcile(t *testing.T) {
	refused := errors.New("the disk is full")
	type seen struct {
		After                 time.Duration
		Failed                bool
		Steps, Patches, Saves int
		Events                []string
	}
	once := seen{After: time.Minute, Steps: 1, Patches: 1, Saves: 1, Events: []string{"Warning Moved: 100% sure"}}
	for name, row := range map[string]struct {
		server server
		fails  error
		passes int
		// catchesUp lets the cache see the write before the last pass.
		catchesUp bool
		want      seen
	}{
		"one pass writes once and then tells":               {passes: 1, want: once},
		"an object that is gone is left":                    {server: server{gone: true}, passes: 1, want: seen{}},
		"a race that was lost is told to nobody":            {server: server{stored: 1}, passes: 1, want: seen{After: cacheRetry, Steps: 1}},
		"a version that lost a race is not looked at again": {server: server{stored: 1}, passes: 9, want: seen{After: cacheRetry, Steps: 1}},
		"a version that was replaced is not looked at again": {passes: 9, want: seen{
			After: cacheRetry, Steps: 1, Patches: 1, Saves: 1, Events: once.Events,
		}},
		"the next version is looked at": {passes: 2, catchesUp: true, want: seen{
			After: time.Minute, Steps: 2, Patches: 2, Saves: 2, Events: append(once.Events, once.Events...),
		}},
		"a write that fails for another reason is tried again": {server: server{refuse: refused}, passes: 3, want: seen{Steps: 3, Failed: true}},
		"a write of an object that has just gone is told to nobody": {
			server: server{refuse: k8serrors.NewNotFound(schema.GroupResource{}, "p")}, passes: 1, want: seen{Steps: 1},
		},
		"a step that fails is reported all the same": {fails: errors.New("no"), passes: 1, want: seen{
			Steps: 1, Patches: 1, Saves: 1, Failed: true, Events: once.Events,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, got, events := row.server, seen{}, told(nil)
			r := &Reconciler[*corev1.Pod]{
				Client: &s, Recorder: &events, New: func() *corev1.Pod { return &corev1.Pod{} },
				Step: func(_ context.Context, p *corev1.Pod) (Outcome, error) {
					got.Steps++
					p.Status.Message = fmt.Sprint("pass ", got.Steps)
					return Outcome{
						After: time.Minute, Events: []Event{{Warning: true, Reason: "Moved", Note: "100% sure"}}, Saved: func() { got.Saves++ },
					}, row.fails
				},
			}
			for pass := range row.passes {
				if row.catchesUp && pass == row.passes-1 {
					s.cached = s.stored
				}
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}})
				got.After, got.Failed = result.RequeueAfter, err != nil
			}
			got.Patches, got.Events = len(s.patches), events
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingToWriteIsNotWritten(t *testing.T) {
	s, saves := server{}, 0
	r := &Reconciler[*corev1.Pod]{
		Client: &s, Recorder: &told{}, New: func() *corev1.Pod { return &corev1.Pod{} },
		Step: func(context.Context, *corev1.Pod) (Outcome, error) { return Outcome{Saved: func() { saves++ }}, nil },
	}
	for range 3 {
		if result, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil || !result.IsZero() {
			t.Errorf("found %+v and %v, want nothing", result, err)
		}
	}
	if len(s.patches) > 0 || saves != 3 {
		t.Errorf("%d writes and %d calls of Saved, want none and 3", len(s.patches), saves)
	}
}
