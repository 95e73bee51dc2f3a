// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// Served is true while the API server serves all the given kinds, whether they are built in or defined by CRDs.
func Served(gvks ...schema.GroupVersionKind) Condition {
	return kindsCondition{name: "Served", gvks: gvks, judge: allServedStatus}
}

// ServedObject is Served for the kinds of the objects, which are looked up in the manager's scheme.
func ServedObject(objs ...client.Object) Condition {
	return kindsCondition{name: "Served", objs: objs, judge: allServedStatus}
}

// FirstServed is true while the API server serves at least one of the versions. It selects the first version that is
// served. Its identity contains the version, so the group restarts when the version changes. A setup function can find
// the version by calling mgr.GetRESTMapper().RESTMapping(gk, version) for each version in order.
func FirstServed(gk schema.GroupKind, versions ...string) Condition {
	c := kindsCondition{
		name: "FirstServed", text: fmt.Sprintf("FirstServed(%s,%s)", gk, strings.Join(versions, ",")), judge: firstServedStatus,
	}
	for _, version := range versions {
		c.gvks = append(c.gvks, gk.WithVersion(version))
	}
	return c
}

// firstServedStatus selects the first served version. It does not skip a preferred version whose presence is unclear,
// because uncertainty must not cause a switch between versions.
func firstServedStatus(kinds []schema.GroupVersionKind, verdicts []detect.Verdict) Status {
	for i, v := range verdicts {
		switch v.Presence {
		case detect.Served:
			return Status{State: True, Reason: v.Reason, Message: "the version is " + kinds[i].Version, Identity: v.Identity}
		case detect.Unclear:
			return Status{State: Unknown, Reason: v.Reason, Message: kindName(kinds[i]) + ": " + v.Message}
		case detect.Absent:
		}
	}
	return Status{State: False, Reason: "NotServed", Message: "the API server does not serve any of the versions"}
}

// kindsCondition is a condition that depends only on which kinds are served.
type kindsCondition struct {
	name  string
	text  string // text is the condition's name; if empty, the name lists the kinds
	gvks  []schema.GroupVersionKind
	objs  []client.Object
	judge judgeVerdictsFunc
}

func (s kindsCondition) String() string {
	if s.text != "" {
		return s.text
	}
	var names []string
	for _, gvk := range s.gvks {
		names = append(names, kindName(gvk))
	}
	for _, obj := range s.objs {
		names = append(names, objectName(obj))
	}
	return strings.Join(names, ",")
}

func objectName(obj client.Object) string {
	if obj != nil {
		if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
			return kindName(gvk)
		}
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", obj), "*")
}

func kindName(gvk schema.GroupVersionKind) string {
	return strings.TrimSuffix(gvk.Kind+"."+gvk.Version+"."+gvk.Group, ".")
}

// Validate returns an error for incorrect use of the condition.
func (s kindsCondition) Validate(src Sources) error {
	kinds, err := s.resolveKinds(src.Scheme)
	src.waitsFor.add(kinds...)
	return err
}

func (s kindsCondition) resolveKinds(scheme *runtime.Scheme) ([]schema.GroupVersionKind, error) {
	kinds, err := kindsOf(scheme, s.objs)
	if err != nil {
		return nil, err
	}
	if len(s.gvks) > 0 {
		kinds = s.gvks // A condition has either objects or kinds.
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("condition %s needs a kind, found none: pass at least one", s.name)
	}
	for _, gvk := range kinds {
		if gvk.Version == "" || gvk.Kind == "" {
			return nil, fmt.Errorf("condition %s needs a version and a kind, found %q: pass both", s.name, gvk.String())
		}
	}
	return kinds, nil
}

func kindsOf(scheme *runtime.Scheme, objs []client.Object) (kinds []schema.GroupVersionKind, err error) {
	for _, obj := range objs {
		gvk, err := findKind(obj, scheme)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, gvk)
	}
	return kinds, nil
}

func findKind(obj client.Object, scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return gvk, fmt.Errorf("find the kind of %T in the scheme of its manager or cluster (add it with AddToScheme): %w", obj, err)
	}
	return gvk, nil
}

type judgeVerdictsFunc func([]schema.GroupVersionKind, []detect.Verdict) Status

func (s kindsCondition) Observe(ctx context.Context, src Sources, report func(Status)) error {
	kinds, err := s.resolveKinds(src.Scheme)
	if err != nil {
		return err
	}
	h, release, err := process.AcquireState(src.toServer(), src.Logger)
	if err != nil {
		return err
	}
	defer release()
	o := newKindObserver(src, h, kinds, func(verdicts []detect.Verdict) { report(s.judge(kinds, verdicts)) }, nil)
	defer o.cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case verdicts := <-o.verdicts:
			o.noteVerdicts(ctx, verdicts)
		}
	}
}

type kindObserver struct {
	kinds             []schema.GroupVersionKind
	report            func([]detect.Verdict)
	stopOnTerminating bool
	onTerminating     func(kind string, now bool)
	managerCache      *delegatingmanager.Cache
	log               *logr.Logger
	verdicts          <-chan []detect.Verdict
	cancel            func()
}

// newKindObserver subscribes to the kinds. If changed is not nil, it is called when new verdicts are available.
func newKindObserver(src Sources, server *process.SharedState, kinds []schema.GroupVersionKind, report func([]detect.Verdict), changed func()) *kindObserver {
	o := &kindObserver{
		kinds: kinds, report: report,
		stopOnTerminating: src.stopOnTerminating, onTerminating: src.onTerminating, managerCache: src.managerCache, log: &server.Log,
	}
	o.verdicts, o.cancel = server.Detector.Subscribe(src.interest.WithKinds(kinds...), changed)
	return o
}

func (o *kindObserver) takeVerdicts(ctx context.Context) {
	select {
	case verdicts := <-o.verdicts:
		o.noteVerdicts(ctx, verdicts)
	default:
	}
}

func (o *kindObserver) noteVerdicts(ctx context.Context, verdicts []detect.Verdict) {
	for i, v := range verdicts {
		if o.onTerminating != nil {
			o.onTerminating(kindName(o.kinds[i]), v.Terminating)
		}
	}
	// The manager's cache is notified first, because a start that results from the report may read from it.
	if err := o.managerCache.NoteVerdicts(ctx, o.kinds, verdicts); err != nil {
		o.log.Error(err, "cannot refresh the manager's client after kinds changed")
	}
	if o.stopOnTerminating {
		verdicts = withoutTerminating(verdicts)
	}
	o.report(verdicts)
}

// withoutTerminating returns a copy of the verdicts in which every kind whose CRD is being deleted is absent.
func withoutTerminating(verdicts []detect.Verdict) []detect.Verdict {
	verdicts = slices.Clone(verdicts)
	for i, v := range verdicts {
		if v.Presence == detect.Served && v.Terminating {
			verdicts[i].Presence, verdicts[i].Identity = detect.Absent, ""
		}
	}
	return verdicts
}

// allServedStatus returns False if a kind is absent. Otherwise it returns Unknown if the presence of a kind is unclear,
// and True if all kinds are served.
func allServedStatus(_ []schema.GroupVersionKind, verdicts []detect.Verdict) Status {
	var identities []string
	decides := detect.Verdict{Presence: detect.Served, Reason: "Served"}
	for _, v := range verdicts {
		identities = append(identities, v.Identity)
		if verdictWeight(v) > verdictWeight(decides) {
			decides = v
		}
	}
	status := Status{State: State(decides.Presence), Reason: decides.Reason, Message: decides.Message}
	if status.State == True {
		status.Identity = strings.Join(identities, ",")
	}
	return status
}

func verdictWeight(v detect.Verdict) int {
	switch {
	case v.Presence == detect.Absent:
		return 3
	case v.Presence == detect.Unclear:
		return 2
	case v.Terminating:
		return 1
	}
	return 0
}
