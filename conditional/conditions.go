// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/managercache"
	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// Condition says when a group shall run.
type Condition interface {
	// String names the condition; it is the default name of the group.
	String() string
	// Observe reports every change until ctx ends. It returns nil when ctx ended or when nothing can change any
	// more; after an error or a panic the group calls it again with a back-off.
	Observe(ctx context.Context, src Sources, report func(Status)) error
}

// Sources is what a condition may observe with: the API server of the group's manager.
type Sources struct {
	Config     *rest.Config
	HTTPClient *http.Client
	Scheme     *runtime.Scheme
	Logger     logr.Logger

	interest          detect.Interest             // how kinds may be looked for, as the group's options say
	stopOnTerminating bool                        // a kind whose CRD is being deleted counts as absent
	onTerminating     func(kind string, now bool) // called when the deletion of a CRD begins or ends; may be nil
	managerCache      *managercache.Cache         // notified of kinds that come and go; may be nil
	waitsFor          *namedKinds                 // collects kinds while a condition is validated; nil afterwards
}

// namedKinds are the kinds that a group names.
type namedKinds struct {
	kinds     []schema.GroupVersionKind
	hasOthers bool // a condition of another package may look for more
}

func (n *namedKinds) add(kinds ...schema.GroupVersionKind) {
	if n != nil {
		n.kinds = append(n.kinds, kinds...)
	}
}

func (src Sources) toServer() process.APIServer {
	return process.APIServer{Config: src.Config, HTTPClient: src.HTTPClient, Scheme: src.Scheme, Outer: src.managerCache}
}

// validator is a condition that finds bad use before it is observed.
type validator interface{ validate(src Sources) error }

// All holds while all the conditions do; one that is False decides, then one that is Unknown. A change of any of
// their identities restarts the group.
func All(c ...Condition) Condition {
	return newCombined("All", c, func() judgeFunc { return judgeAll })
}

// Any holds while at least one of the conditions does; otherwise one that is Unknown decides. It has the identity of
// one that holds and stays with it until that is False, so another one that begins to hold restarts nothing.
func Any(c ...Condition) Condition { return newCombined("Any", c, newAnyJudge) }

// Not holds while the condition is False; Unknown stays Unknown.
func Not(c Condition) Condition {
	return newCombined("Not", []Condition{c}, func() judgeFunc { return judgeNot })
}

// On is c as the API server of another cluster has it: Served looks for its kinds there, Object watches there. The
// cluster need not have been started. The group still runs with its own manager.
func On(cl cluster.Cluster, c Condition) Condition {
	there := func(src Sources) Sources {
		src.Config, src.HTTPClient, src.Scheme, src.managerCache = cl.GetConfig(), cl.GetHTTPClient(), cl.GetScheme(), managercache.FromCache(cl.GetCache())
		return src
	}
	return builtinCondition{
		name: "On(" + joinNames([]Condition{c}) + ")",
		validateFunc: func(src Sources) error {
			if cl == nil {
				return errors.New("condition On needs a cluster, found nil: pass the one of cluster.New")
			}
			return validateAll("On", []Condition{c}, there(src))
		},
		observeFunc: func(ctx context.Context, src Sources, report func(Status)) error {
			return c.Observe(ctx, there(src), report)
		},
	}
}

// Func holds while f returns true. It is called at once and then every so often, each time with a context that ends
// after the same span, or after 10 s if that is less. An error, a panic or a late answer is Unknown. A call that
// ignores its context delays only the next call.
func Func(name string, every time.Duration, f func(context.Context) (bool, error)) Condition {
	return builtinCondition{
		name: name,
		validateFunc: func(Sources) error {
			if name == "" || every <= 0 || f == nil {
				return errors.New("condition Func needs a name, a period longer than 0 and a function: pass all three")
			}
			return nil
		},
		observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
			pollFunc(ctx, every, f, report)
			return nil
		},
	}
}

// Signal holds after true came through the channel, until false comes; before the first of them it is Unknown.
// Closing the channel keeps the last state. Use a channel in one group only: a value has one reader.
func Signal(name string, ch <-chan bool) Condition {
	return builtinCondition{
		name: name,
		validateFunc: func(Sources) error {
			if name == "" || ch == nil {
				return errors.New("condition Signal needs a name and a channel: pass both")
			}
			return nil
		},
		observeFunc: func(ctx context.Context, _ Sources, report func(Status)) error {
			followSignal(ctx, ch, report)
			return nil
		},
	}
}

// builtinCondition is a Condition of this package.
type builtinCondition struct {
	name         string
	validateFunc func(Sources) error
	observeFunc  func(context.Context, Sources, func(Status)) error
}

func (c builtinCondition) String() string { return c.name }

func (c builtinCondition) validate(src Sources) error { return c.validateFunc(src) }

func (c builtinCondition) Observe(ctx context.Context, src Sources, report func(Status)) error {
	return c.observeFunc(ctx, src, report)
}

// newCombined takes a constructor, since a judge may have state: each observation needs one of its own.
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

// joinNames accepts nil conditions, since the name is needed before validation.
func joinNames(of []Condition) string {
	var all []string
	for _, c := range of {
		all = append(all, fmt.Sprint(c))
	}
	return strings.Join(all, ",")
}

func validateAll(name string, of []Condition, src Sources) error {
	if len(of) == 0 {
		return fmt.Errorf("condition %s combines nothing: give at least one condition", name)
	}
	for i, c := range of {
		if c == nil {
			return fmt.Errorf("condition %s got nil as its condition number %d: pass a condition", name, i+1)
		}
		if err := validateOne(c, src); err != nil {
			return fmt.Errorf("condition %s: %w", name, err)
		}
	}
	return nil
}

func validateOne(c Condition, src Sources) error {
	if v, ok := c.(validator); ok {
		return v.validate(src)
	}
	if src.waitsFor != nil {
		src.waitsFor.hasOthers = true
	}
	return nil
}
