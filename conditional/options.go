// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// Option adjusts a group. It may also stand among the options of For of this package's Builder.
type Option func(*options)

// ApplyToFor panics: controller-runtime's builder cannot heed the option.
func (Option) ApplyToFor(*builder.ForInput) { panic(onlyHere) }

type options struct {
	name              string
	sharesName        bool      // with other groups
	places            []uintptr // that the builder binds clients to
	drainTimeout      time.Duration
	startBackoff      wait.Backoff
	restartBurst      int
	restartPause      wait.Backoff
	recorder          events.EventRecorder
	regarding         runtime.Object
	interest          detect.Interest
	stopOnTerminating bool
	optional          []client.Object
	cacheOptions      func(*cache.Options)

	errs []error
}

func defaultOptions(when Condition) options {
	return options{
		name:         when.String(),
		drainTimeout: 30 * time.Second,
		startBackoff: defaultBackoff(),
		restartBurst: 5,
		restartPause: wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: 1 << 30, Cap: time.Minute},
	}
}

// addErrorUnless collects the errors of options for validate, since an Option returns none.
func (o *options) addErrorUnless(ok bool, format string, args ...any) {
	if !ok {
		o.errs = append(o.errs, fmt.Errorf(format, args...))
	}
}

// validate returns what is wrong with the options, alone and together, and with the kinds that the group waits for.
func (o *options) validate(waitsFor namedKinds) error {
	for _, crd := range o.interest.CRDs {
		_, group, _ := strings.Cut(crd, ".")
		o.addErrorUnless(waitsFor.hasOthers || slices.ContainsFunc(waitsFor.kinds, func(gvk schema.GroupVersionKind) bool { return gvk.Group == group }),
			"expected WatchNamed to name a CRD of a kind that the group waits for, found %q, and no such kind is in the API group %q: correct it", crd, group)
	}
	o.addErrorUnless(o.name != "" && !strings.Contains(o.name, " "),
		"expected a group's name without a space, found %q: set one with conditional.Name", o.name)
	o.addErrorUnless(o.interest.Poll == 0 || len(o.interest.CRDs) == 0,
		"expected Poll or WatchNamed, found both: drop WatchNamed, for a group that polls watches nothing")
	return errors.Join(o.errs...)
}

// Name sets the group's name in logs, metrics and checks; the default is the condition's String.
func Name(name string) Option { return func(o *options) { o.name = name } }

// DrainTimeout sets how long a stop waits for the runnables before the group is Stuck; the default is 30 s.
func DrainTimeout(d time.Duration) Option {
	return func(o *options) {
		o.addErrorUnless(d > 0, "expected a DrainTimeout longer than 0, found %s: correct it", d)
		o.drainTimeout = d
	}
}

// StartBackoff sets the pauses between failed starts; the default grows from 1 s to 5 min. It begins anew when the
// condition changes, and after a start that lasted longer than its Cap.
func StartBackoff(b wait.Backoff) Option {
	return func(o *options) {
		o.addErrorUnless(b.Duration > 0, "expected a StartBackoff whose Duration is longer than 0, found %s: correct it", b.Duration)
		o.startBackoff = b
	}
}

// RestartLimit keeps a condition that comes and goes from restarting the group all the time: burst starts are free,
// then a pause follows each start. The default is 5 and pauses from 10 s to 1 min. Stops are never delayed. While a
// start is held back the group is Dormant and GroupStatus.HeldUntil says for how long; what the condition says then is
// what counts. After 10 minutes in Running all former starts are forgotten.
func RestartLimit(burst int, pause wait.Backoff) Option {
	return func(o *options) {
		o.addErrorUnless(burst > 0, "expected a RestartLimit of at least 1 start, found %d: correct it", burst)
		o.addErrorUnless(pause.Duration > 0, "expected a RestartLimit with a pause longer than 0, found %s: correct its Duration", pause.Duration)
		o.restartBurst, o.restartPause = burst, pause
	}
}

// Events records what happens to the group as events about an object, for example the Deployment of the operator; see
// the constants for their reasons. mgr.GetEventRecorder makes a recorder.
func Events(rec events.EventRecorder, regarding runtime.Object) Option {
	return func(o *options) {
		o.addErrorUnless(rec != nil && regarding != nil, "expected a recorder and an object in Events, found nil: pass both")
		o.recorder, o.regarding = rec, regarding
	}
}

// Poll asks discovery at this interval instead of watching CRDs, so it needs no right to watch them. Starts and stops
// come up to that much later.
func Poll(interval time.Duration) Option {
	return func(o *options) {
		o.addErrorUnless(interval > 0, "expected an interval longer than 0 in Poll, found %s: correct it", interval)
		o.interest.Poll = interval
	}
}

// WatchNamed watches the CRDs of these names, and no others: it needs get, list and watch for nothing but them
// (resourceNames). A name is <plural>.<group>.
func WatchNamed(crdNames ...string) Option {
	return func(o *options) {
		o.addErrorUnless(len(crdNames) > 0, "expected names of CRDs in WatchNamed, found none: pass at least one, for example widgets.example.com")
		for _, name := range crdNames {
			plural, group, _ := strings.Cut(name, ".")
			o.addErrorUnless(plural != "" && group != "" && !strings.ContainsAny(name, "/ "),
				"expected <plural>.<group> in WatchNamed, found %q: pass the CRD's name, for example widgets.example.com", name)
		}
		o.interest.CRDs = crdNames
	}
}

// APIServices also watches APIServices, so that kinds of aggregated API servers are seen to come and go. It needs the
// right to list and watch apiservices.apiregistration.k8s.io.
func APIServices() Option { return func(o *options) { o.interest.APIServices = true } }

// StopOnTerminating stops the group when the deletion of a CRD is asked for, and not only when it is gone. Finalizers
// of the group's controllers then stay on, and with them the objects and the CRD, unless they are removed by hand.
func StopOnTerminating() Option { return func(o *options) { o.stopOnTerminating = true } }

// Optional names kinds that the group's controllers may watch although they are not served. The manager's scheme knows
// their kinds.
func Optional(objs ...client.Object) Option {
	return func(o *options) {
		o.addErrorUnless(len(objs) > 0, "expected objects in Optional, found none: pass at least one, for example &corev1.Pod{}")
		o.optional = append(o.optional, objs...)
	}
}

// CacheOptions changes the options of the group's cache, for example its namespaces or selectors. adjust is called at every start with
// what the group would have otherwise, so Restart applies other ones. Such a group shares no informer.
func CacheOptions(adjust func(*cache.Options)) Option {
	return func(o *options) {
		o.addErrorUnless(adjust != nil, "expected a function in CacheOptions, found nil: pass one, or leave the option out")
		o.cacheOptions = adjust
	}
}
