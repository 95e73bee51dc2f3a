// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func evening() time.Time { return time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC) }

func scaleToZero() []torporv1alpha1.StopOperation {
	return []torporv1alpha1.StopOperation{operation("replace", "/spec/replicas", "0")}
}

// world is an object, and the actions of users and Slumbers on it.
type world struct {
	t       testing.TB
	now     time.Time
	object  *unstructured.Unstructured
	refusal string
	manager string
	told    []string
}

func newWorld(t testing.TB, replicas int64) *world {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": replicas}}}
	u.SetName("shop")
	return &world{t: t, now: evening(), object: u}
}

func (w *world) annotate(name, value string) {
	annotations := w.object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[name] = value; value == "" {
		delete(annotations, name)
	}
	w.object.SetAnnotations(annotations)
}

// schedule writes the annotation with which a Slumber stops the object until a time, or starts it.
func (w *world) schedule(slumber string, isStopped bool, until time.Time) {
	record := torporv1alpha1.StopRecord{Since: metav1.NewTime(w.now), By: "Slumber " + slumber, Requested: isStopped}
	stop := torporv1alpha1.ScheduledStop{Slumber: slumber, Stops: []torporv1alpha1.StopRecord{record}}
	if isStopped && !until.IsZero() {
		stop.ExpiresAt = new(metav1.NewTime(until))
	}
	if !isStopped {
		stop.Stops[0].EndedAt = new(metav1.NewTime(w.now))
	}
	name, value, err := stoprecord.ScheduledAnnotation(stop, slumber)
	if err != nil {
		w.t.Fatal(err)
	}
	w.annotate(name, value)
}

func (w *world) replicas() int64 {
	n, _, _ := unstructured.NestedInt64(w.object.Object, "spec", "replicas")
	return n
}

func (w *world) scale(replicas int64) {
	w.object.Object["spec"].(map[string]any)["replicas"] = replicas
}

// pass makes one decision and writes its plan. If dies is true, the manager dies before the write.
func (w *world) pass(dies bool) {
	plan := Decide(ObservedSwitch{Now: w.now, Object: w.object, Operations: scaleToZero(), Refusal: w.refusal, Manager: w.manager})
	if dies {
		return
	}
	for _, e := range plan.Events {
		w.told = append(w.told, e.Reason)
	}
	// Convert the object to JSON and back, as a write to the API server does.
	data, err := json.Marshal(plan.Next)
	if err != nil {
		w.t.Fatal(err)
	}
	w.object = &unstructured.Unstructured{}
	if err := json.Unmarshal(append([]byte(`{"apiVersion":"apps/v1","kind":"Deployment",`), data[1:]...), &w.object.Object); err != nil {
		w.t.Fatal(err)
	}
	w.scale(int64(w.object.Object["spec"].(map[string]any)["replicas"].(float64)))
}

// settle runs passes until the object no longer changes. More than five passes are an error.
func (w *world) settle() {
	for range 5 {
		before, _ := json.Marshal(w.object)
		w.pass(false)
		if after, _ := json.Marshal(w.object); string(before) == string(after) {
			return
		}
	}
	w.t.Fatalf("expected it to come to rest, found %v", w.object.Object)
}

// TestDecide has sequences of steps by users, Slumbers and autoscalers, and the expected replicas and events.
func TestDecide(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		steps, want string
	}{
		"an object without a stop: nothing changes":                                                                  {"", "3"},
		"a Slumber stops and starts the object: the replicas are restored":                                           {"sleep wake", "3 ObjectStopped ObjectRestored"},
		"a Slumber stops the object: scaled to zero":                                                                 {"sleep", "0 ObjectStopped"},
		"a user stops and starts the object: the replicas are restored":                                              {"stop start", "3 ObjectStopped ObjectRestored"},
		"a user stops the object during a Slumber's stop: still stopped after the end of the Slumber's stop":         {"sleep stop wake", "0 ObjectStopped"},
		"a user scales the object to zero before a Slumber's stop: still at zero after the end of that stop":         {"scale:0 sleep wake", "0 ObjectStopped ObjectRestored"},
		"a user scales the object during a Slumber's stop: the user's replicas are kept":                             {"sleep scale:5", "5 ObjectStopped StartedByOthers"},
		"a user scales the object during a Slumber's stop: the user's replicas are kept after the end of that stop":  {"sleep scale:5 wake", "5 ObjectStopped StartedByOthers"},
		"a user scales the object during a Slumber's stop: the Slumber's next stop stops it again":                   {"sleep scale:5 wake later sleep", "0 ObjectStopped StartedByOthers ObjectStopped"},
		"a user stops the object and scales it up: the scaling ends the stop":                                        {"stop scale:4", "4 ObjectStopped StartedByOthers"},
		"a user scales the object during a Slumber's stop, and requests a stop before the next pass: stopped again":  {"sleep scale:5/dies stop", "0 ObjectStopped ObjectStopped"},
		"a user scales the object during a Slumber's stop, stops it and starts it: the scaled replicas are restored": {"sleep scale:5/dies stop wake start", "5 ObjectStopped ObjectStopped ObjectRestored"},
		"a user scales the object during a Slumber's stop, and the user's stop is refused: the replicas are kept":    {"sleep refuse scale:5/dies stop", "5 ObjectStopped StopRefused"},
		"a user's stop whose end time has passed: the replicas are restored":                                         {"stop until later later", "3 ObjectStopped StopEnded ObjectRestored"},
		"a Slumber's stop that has expired: the replicas are restored":                                               {"sleep:1h later later", "3 ObjectStopped ObjectRestored"},
		"a user skips the Slumber's stop: the replicas are restored":                                                 {"sleep skip", "3 ObjectStopped ObjectRestored"},
		"an autoscaler that scales from zero: the stop is refused":                                                   {"refuse sleep", "3 StopRefused"},
		"an autoscaler that no longer scales from zero: the stop is retried":                                         {"refuse sleep allow", "0 StopRefused ObjectStopped"},
		"an autoscaler that is added during the stop: the start is not refused":                                      {"sleep refuse wake", "3 ObjectStopped ObjectRestored"},
		"a malformed restore annotation: the start is refused":                                                       {"sleep spoil wake", "0 ObjectStopped StopRefused"},
		"a stop annotation with another value than true: nothing changes":                                            {"stop:yes", "3"},
		"a malformed record of stops: a start restores the replicas":                                                 {"stop spoil-record start", "3 ObjectStopped ObjectRestored"},
		"a forged annotation of a Slumber: nothing changes":                                                          {"forge", "3"},
		"an object that is being deleted: nothing changes":                                                           {"delete sleep", "3"},
		"a manager that is killed before each write: stopped and restored":                                           {"sleep/dies sleep wake/dies wake", "3 ObjectStopped ObjectRestored"},
		"stops by two Slumbers, one of which ends: still stopped":                                                    {"sleep sleep-other wake", "0 ObjectStopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			w.doAll(row.steps)
			told := slices.DeleteFunc(w.told, func(reason string) bool { return reason == "RequesterUnknown" })
			if found := strings.TrimSpace(fmt.Sprint(w.replicas(), " ", strings.Join(told, " "))); found != row.want {
				t.Errorf("expected %q, found %q: %v", row.want, found, w.object.GetAnnotations())
			}
		})
	}
}

// doAll performs steps in order, with passes after each. A step that ends in "/dies" is followed by a pass in which
// the manager dies before its write.
func (w *world) doAll(steps string) {
	for step := range strings.FieldsSeq(steps) {
		step, dies := strings.CutSuffix(step, "/dies")
		w.do(step)
		if w.pass(dies); !dies {
			w.settle()
		}
	}
}

func (w *world) do(step string) {
	verb, value, _ := strings.Cut(step, ":")
	switch verb {
	case "sleep":
		after, _ := time.ParseDuration(value)
		until := time.Time{}
		if after > 0 {
			until = w.now.Add(after)
		}
		w.schedule("nights", true, until)
	case "sleep-other":
		w.schedule("weekends", true, time.Time{})
	case "wake":
		w.schedule("nights", false, time.Time{})
	case "stop":
		if value == "" {
			value = "true"
		}
		w.annotate(torporv1alpha1.StoppedAnnotation, value)
	case "start":
		w.annotate(torporv1alpha1.StoppedAnnotation, "")
	case "until":
		w.annotate(torporv1alpha1.UntilAnnotation, w.now.Add(30*time.Minute).Format(time.RFC3339))
	case "skip":
		w.annotate(torporv1alpha1.SkipUntilAnnotation, w.now.Add(time.Hour).Format(time.RFC3339))
	case "later":
		w.now = w.now.Add(40 * time.Minute)
	case "scale":
		var n int64
		if _, err := fmt.Sscan(value, &n); err != nil {
			w.t.Fatal(err)
		}
		w.scale(n)
	case "refuse":
		w.refusal = "an autoscaler"
	case "allow":
		w.refusal = ""
	case "spoil":
		w.annotate(torporv1alpha1.RestoreAnnotation, "{")
	case "spoil-record":
		w.annotate(torporv1alpha1.StopsAnnotation, "[{")
	case "forge":
		w.annotate(torporv1alpha1.SlumberAnnotationPrefix+"nights", `{"slumber": "another", "stops": [{"since": "2026-01-01T00:00:00Z", "requested": true}]}`)
	case "delete":
		w.object.SetDeletionTimestamp(new(metav1.NewTime(w.now)))
	default:
		w.t.Fatalf("expected a step, found %q", step)
	}
}

const (
	sequences     = 1000
	soakSequences = 10_000 // A quarter of a minute.
)

// TestRandomSequencesRestoreExactly has users stop, start, scale and edit an object, Slumbers stop and start it, and
// managers die. After all stops have ended, the object has the replicas that users last set, even if that is zero.
func TestRandomSequencesRestoreExactly(t *testing.T) {
	t.Parallel()
	count := sequences
	if os.Getenv("TORPOR_SOAK") != "" {
		count = soakSequences
	}
	for seed := range uint64(count) {
		random := rand.New(rand.NewPCG(seed, 7))
		people := int64(random.IntN(4))
		w := newWorld(t, people)
		var history []string
		for range 12 {
			step := []string{"sleep", "sleep-other", "wake", "stop", "start", "later", "scale", "dies", "edit"}[random.IntN(9)]
			history = append(history, step)
			switch step {
			case "dies":
				w.pass(true)
				continue
			case "edit":
				w.annotate("example.com/edit", fmt.Sprint(len(history)))
			case "scale":
				n := int64(random.IntN(4))
				if isKept := len(ReadSwitch(w.object).Saved) > 0; isKept && n == 0 {
					continue // No pass could detect this change.
				}
				people = n
				w.scale(n)
			default:
				w.do(step)
			}
			w.settle()
			if isAsked := IsAsked(w.object); isAsked && w.replicas() != 0 {
				t.Fatalf("seed %d: expected the object that a user stopped to be stopped, found %d: %v", seed, w.replicas(), history)
			}
		}
		w.do("start")
		w.annotate(torporv1alpha1.SlumberAnnotationPrefix+"nights", "")
		w.annotate(torporv1alpha1.SlumberAnnotationPrefix+"weekends", "")
		w.now = w.now.Add(time.Minute)
		w.settle()
		if w.replicas() != people {
			t.Fatalf("seed %d: expected %d, found %d: %v %v", seed, people, w.replicas(), history, w.object.GetAnnotations())
		}
		if _, isLeft := w.object.GetAnnotations()[torporv1alpha1.RestoreAnnotation]; isLeft {
			t.Fatalf("seed %d: expected nothing to restore, found %v: %v", seed, w.object.GetAnnotations(), history)
		}
	}
}
