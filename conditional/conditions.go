// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// Condition defines when a group runs. A condition may also have a method Validate(Sources) error, which reports
// incorrect use to the caller of [Setup].
type Condition interface {
	// String returns the name of the condition, which is the default name of the group.
	String() string
	// Observe calls report for every change until ctx is cancelled. It returns nil when ctx was cancelled or when no
	// further change is possible. After an error or a panic, the group calls it again with a back-off.
	Observe(ctx context.Context, src Sources, report func(Status)) error
}

// Sources provides access to the API server of the group's manager.
type Sources struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	Logger     logr.Logger

	interest          detect.Interest             // interest defines how kinds are detected
	stopOnTerminating bool                        // stopOnTerminating makes a kind absent while its CRD is being deleted
	onTerminating     func(kind string, now bool) // called with every verdict; now is true if the CRD is being deleted; may be nil
	managerCache      *delegatingmanager.Cache    // managerCache is notified of kinds that appear and disappear; may be nil
	waitsFor          *namedKinds                 // waitsFor collects kinds while a condition is validated; nil afterwards
}

// namedKinds are the kinds that a group's condition and options list.
type namedKinds struct {
	kinds     []schema.GroupVersionKind
	hasOthers bool // hasOthers is true if a condition of another package may depend on further kinds
}

func (n *namedKinds) add(kinds ...schema.GroupVersionKind) {
	if n != nil {
		n.kinds = append(n.kinds, kinds...)
	}
}

func (src Sources) toServer() process.APIServer {
	return process.APIServer{Config: src.Config, HTTPClient: src.HTTPClient, Scheme: src.Scheme, Outer: src.managerCache}
}

// In returns the sources for another cluster, for a condition that depends on objects in that cluster. The cluster need
// not have been started.
func (src Sources) In(cl cluster.Cluster) Sources {
	src.Config, src.HTTPClient, src.Scheme, src.managerCache = cl.GetConfig(), cl.GetHTTPClient(), cl.GetScheme(), delegatingmanager.FromCache(cl.GetCache())
	return src
}

// Validate calls the condition's own method Validate, if it has one, and returns the error. Setup calls it for its
// condition. A condition that combines other conditions must call it for each of them.
func (src Sources) Validate(c Condition) error {
	if v, ok := c.(validator); ok {
		return v.Validate(src)
	}
	if src.waitsFor != nil {
		src.waitsFor.hasOthers = true
	}
	return nil
}

// validator is a condition that reports its incorrect use to the caller of Setup, before Observe is called.
type validator interface{ Validate(src Sources) error }

// All is true while all the conditions are true. It is False if one condition is False; otherwise it is Unknown if one
// is Unknown. A change to any of the identities restarts the group.
func All(c ...Condition) Condition {
	return newCombined("All", c, func() judgeFunc { return judgeAll })
}

// Any is true while at least one of the conditions is true. Otherwise it is Unknown if one is Unknown. It keeps the
// identity of one true condition until that condition is False. Therefore another condition that becomes true does not
// restart the group.
func Any(c ...Condition) Condition { return newCombined("Any", c, newAnyJudge) }

// Not is true while the condition is False. Unknown stays Unknown.
func Not(c Condition) Condition {
	return newCombined("Not", []Condition{c}, func() judgeFunc { return judgeNot })
}

type builtinCondition struct {
	name         string
	mistake      error               // mistake is the error for incorrect use that is detected without Sources
	validateFunc func(Sources) error // validateFunc may be nil
	observeFunc  func(context.Context, Sources, func(Status)) error
}

func errorUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

func (c builtinCondition) String() string { return c.name }

// Validate returns an error for incorrect use of the condition.
func (c builtinCondition) Validate(src Sources) error {
	if c.mistake != nil || c.validateFunc == nil {
		return c.mistake
	}
	return c.validateFunc(src)
}

func (c builtinCondition) Observe(ctx context.Context, src Sources, report func(Status)) error {
	return c.observeFunc(ctx, src, report)
}

// newCombined returns a condition that combines others. Each call of Observe calls judge once, because a judgeFunc may
// have state.
func newCombined(name string, of []Condition, judge func() judgeFunc) Condition {
	return builtinCondition{
		name:         name + "(" + joinNames(of) + ")",
		validateFunc: func(src Sources) error { return validateAll(name, of, src) },
		observeFunc: func(ctx context.Context, src Sources, report func(Status)) error {
			observeCombined(ctx, of, src, judge(), report)
			return nil
		},
	}
}

// joinNames accepts nil conditions, because the name is needed before validation.
func joinNames(of []Condition) string {
	var all []string
	for _, c := range of {
		all = append(all, fmt.Sprint(c))
	}
	return strings.Join(all, ",")
}

func validateAll(name string, of []Condition, src Sources) error {
	if len(of) == 0 {
		return fmt.Errorf("condition %s combines nothing: pass at least one condition", name)
	}
	for i, c := range of {
		if c == nil {
			return fmt.Errorf("condition %s got nil as its condition number %d: pass a condition", name, i+1)
		}
		if err := src.Validate(c); err != nil {
			return fmt.Errorf("condition %s: %w", name, err)
		}
	}
	return nil
}

// State is the state of a condition. It is printed and marshaled as Unknown, False or True.
type State int8

// States of a condition. Unknown keeps a running group running.
const (
	Unknown State = iota
	False
	True
)

func (s State) String() string {
	if s < Unknown || s > True {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return [...]string{"Unknown", "False", "True"}[s]
}

// MarshalText writes the state as String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is one report of a condition.
type Status struct {
	State State `json:"state"`
	// Reason is a CamelCase word. Message is a sentence for users.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Identity identifies the object that the condition depends on. If it changes while the state is True, the group
	// restarts.
	Identity string `json:"identity,omitempty"`
}

// defaultBackoff grows from 1 s to 5 min.
func defaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: 5 * time.Minute}
}

// observeWithBackoff observes a condition until Observe returns nil or ctx is cancelled. After an error or a panic,
// which it reports as Unknown, it repeats the observation with a back-off. The back-off is reset after an observation
// that lasted longer than the Cap of the back-off.
func observeWithBackoff(ctx context.Context, c Condition, src Sources, backoff wait.Backoff, report func(Status)) {
	pause := backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := observeOnce(ctx, c, src, report)
		if err == nil || ctx.Err() != nil {
			return
		}
		report(Status{State: Unknown, Reason: "ObserveFailed", Message: err.Error()})
		if time.Since(began) > backoff.Cap {
			pause = backoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

func observeOnce(ctx context.Context, c Condition, src Sources, report func(Status)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("condition %s panicked: %v", c, p)
		}
	}()
	if err := c.Observe(ctx, src, report); err != nil {
		return fmt.Errorf("observe condition %s: %w", c, err)
	}
	return nil
}

// observeCombined observes all conditions concurrently and reports a new judgement after each of their reports. It
// returns when all observations have returned, because ctx was cancelled or because no further change is possible.
func observeCombined(ctx context.Context, of []Condition, src Sources, judge judgeFunc, report func(Status)) {
	var mu sync.Mutex
	inputs := make([]judgeInput, len(of))
	for i, c := range of {
		inputs[i] = judgeInput{name: c.String(), now: Status{Reason: "NotReported", Message: "no report yet"}}
	}
	var running sync.WaitGroup
	for i, c := range of {
		running.Go(func() {
			observeWithBackoff(ctx, c, src, defaultBackoff(), func(s Status) {
				mu.Lock()
				defer mu.Unlock() // The lock is held during the report; otherwise an older judgement could arrive after a newer one.
				inputs[i].noteReport(s)
				report(judge(inputs))
			})
		})
	}
	running.Wait()
}

type judgeInput struct {
	name string
	now  Status
	last Status // last is the last report that was not Unknown
}

func (i *judgeInput) noteReport(s Status) {
	i.now = s
	if s.State != Unknown {
		i.last = s
	}
}

func (i *judgeInput) String() string {
	text := i.name + " is " + i.now.State.String()
	if i.now.Message != "" {
		text += ": " + i.now.Message
	}
	return text
}

type judgeFunc func([]judgeInput) Status

// judgeAll is the AND of Kleene's three-valued logic: False if one condition is False, otherwise Unknown if one is
// Unknown. Its identity combines the identities of all conditions.
func judgeAll(inputs []judgeInput) Status {
	switch {
	case anyInState(inputs, False):
		return combineState(inputs, False)
	case anyInState(inputs, Unknown):
		return combineState(inputs, Unknown)
	}
	var identities []string
	for _, i := range inputs {
		if i.now.Identity != "" {
			identities = append(identities, i.now.Identity)
		}
	}
	s := combineState(inputs, True)
	s.Identity = strings.Join(identities, ",")
	return s
}

// newAnyJudge returns the OR of Kleene's three-valued logic: True if one condition is True, otherwise Unknown if one is
// Unknown. Its identity is that of one True condition, which is kept until it is False. The group must not restart
// because another condition becomes True, or because the kept condition is Unknown for a while.
func newAnyJudge() judgeFunc {
	relied := -1
	return func(inputs []judgeInput) Status {
		switch {
		case anyInState(inputs, True):
			// The last known state counts, because a condition that is Unknown for a while must not change the
			// identity.
			if relied < 0 || inputs[relied].last.State != True {
				relied = slices.IndexFunc(inputs, func(i judgeInput) bool { return i.now.State == True })
			}
			s := combineState(inputs, True)
			s.Identity = inputs[relied].last.Identity
			return s
		case anyInState(inputs, Unknown):
			return combineState(inputs, Unknown)
		}
		return combineState(inputs, False)
	}
}

// judgeNot inverts one condition. The inverse has no identity.
func judgeNot(inputs []judgeInput) Status {
	s := combineState(inputs, inputs[0].now.State)
	switch s.State {
	case True:
		s.State = False
	case False:
		s.State = True
	case Unknown:
	}
	return s
}

func anyInState(inputs []judgeInput, state State) bool {
	return slices.ContainsFunc(inputs, func(i judgeInput) bool { return i.now.State == state })
}

// combineState returns a status in the deciding state, with the messages of the conditions in that state, and with
// their reason, or Several if their reasons differ.
func combineState(inputs []judgeInput, state State) Status {
	var reasons, messages []string
	for _, i := range inputs {
		if i.now.State == state {
			reasons, messages = append(reasons, i.now.Reason), append(messages, i.String())
		}
	}
	reasons, messages = sortUnique(reasons), sortUnique(messages)
	s := Status{State: state, Reason: "Several", Message: strings.Join(messages, "; ")}
	if len(reasons) == 1 {
		s.Reason = reasons[0]
	}
	return s
}

func sortUnique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
