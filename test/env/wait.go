// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitFor reads an object repeatedly by its name until holds returns nil. The object then has the content of the
// last read. If holds is nil, it waits until the object exists.
func (e *Environment) WaitFor(t testing.TB, what string, obj client.Object, holds func() error) {
	t.Helper()
	Eventually(t, what, func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return fmt.Errorf("get %T %s: %w", obj, obj.GetName(), err)
		}
		if holds == nil {
			return nil
		}
		return holds()
	})
}

// WaitForCondition waits until a condition of the object has a status and a reason, or any reason if reason is
// empty, and returns the condition.
func (e *Environment) WaitForCondition(t testing.TB, obj client.Object, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	e.WaitFor(t, fmt.Sprintf("%s becomes %s %s", kind, status, reason), obj, func() error {
		all, err := conditionsOf(obj)
		if err != nil {
			return err
		}
		if found = meta.FindStatusCondition(all, kind); found == nil {
			return fmt.Errorf("expected a condition %s, found %d others", kind, len(all))
		}
		if found.Status != status || reason != "" && found.Reason != reason {
			return fmt.Errorf("expected %s %s, found %s %s: %s", status, reason, found.Status, found.Reason, found.Message)
		}
		return nil
	})
	return *found
}

// conditionsOf returns the conditions in the status of an object of any kind.
func conditionsOf(obj client.Object) ([]metav1.Condition, error) {
	// Convert through JSON, because each kind has its own Go type for the status.
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	var content struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("expected a kind with conditions, found %T: %w", obj, err)
	}
	return content.Status.Conditions, nil
}

// WaitForEvent waits for an event in a namespace with a reason and a note that contains the words, and returns it.
func (e *Environment) WaitForEvent(t testing.TB, namespace, reason, words string) *eventsv1.Event {
	t.Helper()
	var event *eventsv1.Event
	Eventually(t, "an event "+reason+" in "+namespace, func() error {
		var all eventsv1.EventList
		if err := e.Client.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list events: %w", err)
		}
		var others []string
		for i := range all.Items {
			event = &all.Items[i]
			if event.Reason == reason && strings.Contains(event.Note, words) {
				return nil
			}
			others = append(others, event.Reason+": "+event.Note)
		}
		return fmt.Errorf("expected %s: %s, found %q", reason, words, others)
	})
	return event
}

// WaitForDeletion waits until an object is gone.
func (e *Environment) WaitForDeletion(t testing.TB, obj client.Object) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%T %s is gone", obj, obj.GetName()), func() error {
		err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		switch {
		case k8serrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("get %T %s: %w", obj, obj.GetName(), err)
		default:
			return errors.New("expected the object to be gone, found it")
		}
	})
}

// ExpectNoError fails the test immediately if there is an error.
func ExpectNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ErrorIf returns an error with the formatted message if isWrong, and otherwise nil, for use with Eventually.
func ErrorIf(isWrong bool, format string, args ...any) error {
	if isWrong {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// ExpectEqual fails the test with a diff if two values differ.
func ExpectEqual(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// ExpectRefused expects an error of the API server for an invalid object that contains the words, or no error if
// words is empty.
func ExpectRefused(t testing.TB, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("expected the object to be accepted, found: %v", err)
	case words != "" && (!k8serrors.IsInvalid(err) || !strings.Contains(err.Error(), words)):
		t.Errorf("expected the object to be refused with\n%s\nfound\n%v", words, err)
	}
}

// ExpectPatched reads an object, changes it, and writes the difference, as kubectl edit does.
func ExpectPatched[T client.Object](t testing.TB, env *Environment, obj T, change func(T), options ...client.PatchOption) {
	t.Helper()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatalf("get %T %s: %v", obj, obj.GetName(), err)
	}
	before, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		t.Fatalf("expected a copy of %T to be an object", obj)
	}
	change(obj)
	if err := env.Client.Patch(t.Context(), obj, client.MergeFrom(before), options...); err != nil {
		t.Fatalf("patch %T %s: %v", obj, obj.GetName(), err)
	}
}

// ExpectAnnotated sets annotations of an object; an empty value removes an annotation.
func (e *Environment) ExpectAnnotated(t testing.TB, obj client.Object, annotations map[string]string) {
	t.Helper()
	ExpectPatched(t, e, obj, func(obj client.Object) {
		all := obj.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		for name, value := range annotations {
			all[name] = value
			if value == "" {
				delete(all, name)
			}
		}
		obj.SetAnnotations(all)
	})
}

// DecodeObject reads an object from a manifest in JSON.
func DecodeObject[T runtime.Object](t testing.TB, manifest string, obj T) T {
	t.Helper()
	if err := json.Unmarshal([]byte(manifest), obj); err != nil {
		t.Fatalf("decode %T: %v", obj, err)
	}
	return obj
}

const (
	// eventuallyTimeout is much longer than every expected duration, so that no test fails because of a slow
	// machine.
	eventuallyTimeout = 5 * time.Minute
	// pollInterval is the interval of calls. During a long wait, the interval is a twentieth of the time so far, but at most
	// maxPollInterval, because frequent calls of many tests would slow the machine down.
	pollInterval    = 100 * time.Millisecond
	maxPollInterval = 500 * time.Millisecond
)

// Eventually calls f until it returns nil. After five minutes the test fails with the last error.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	EventuallyWithin(t, eventuallyTimeout, what, f)
}

// EventuallyWithin is Eventually for slower changes, such as a rollout on real nodes.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	next := time.NewTimer(pollInterval)
	defer next.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for began := time.Now(); ; {
		err := f()
		if err == nil {
			return
		}
		next.Reset(max(pollInterval, min(time.Since(began)/20, maxPollInterval)))
		select {
		case <-next.C:
		case <-deadline.C:
			t.Fatalf("never came true within %s: %s: %v", limit, what, err)
		}
	}
}

// Consistently calls f repeatedly for a duration, and fails the test at the first error.
func Consistently(t testing.TB, duration time.Duration, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	end := time.NewTimer(duration)
	defer end.Stop()
	for {
		if err := f(); err != nil {
			t.Fatalf("did not stay true for %s: %s: %v", duration, what, err)
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}
