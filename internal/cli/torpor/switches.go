// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	"github.com/torpor-dev/torpor/internal/stoppable"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// Switch is a row of `kubectl torpor status`, for programs that show it outside a terminal.
type Switch struct{ stopRow }

// IsStuck reports whether the switch waits for an intervention.
func (s Switch) IsStuck() bool { return strings.HasPrefix(s.Next, stuckPrefix) || s.refusal != "" }

// IsAsleepBySchedule reports whether a Slumber stops the object. Only kubectl torpor skip ends such a stop, not a
// start.
func (s Switch) IsAsleepBySchedule() bool { return s.Stopped && s.slumber != "" }

// WithoutHistory returns the switch without its earlier stops and its conditions, which take most of the memory of a
// row.
func (s Switch) WithoutHistory() Switch { return Switch{s.withoutHistory()} }

// Kind is a kind of objects that have switches.
type Kind struct{ stoppableKind }

// ListKinds returns the kinds that need no StopAdapter, in the order in which the commands list them.
func ListKinds() []Kind {
	var kinds []Kind
	for _, k := range stoppableKinds() {
		kinds = append(kinds, Kind{k})
	}
	return kinds
}

// IsSwitched reports whether the controllers of the kind do not know Torpor. Most objects of such a kind are never
// stopped.
func (k Kind) IsSwitched() bool { return k.isSwitched }

// IsForeign reports whether a StopAdapter describes the kind.
func (k Kind) IsForeign() bool { return stoppable.FindGroup(k.gvk.Kind) != k.gvk.Group }

// Name returns a unique name of the kind: the name of its StopAdapter, because several groups have a kind such as
// Cluster, or the kind itself.
func (k Kind) Name() string {
	if k.IsForeign() {
		return k.names[0]
	}
	return k.gvk.Kind
}

// HasSwitches reports whether the switches of an object are shown. A switched object must have been stopped once.
func (k Kind) HasSwitches(obj client.Object) bool {
	return !k.isSwitched || !isUntouched(obj, fieldswitch.ReadSwitch(obj))
}

// GVK returns the group, version and kind.
func (k Kind) GVK() schema.GroupVersionKind { return k.gvk }

// Resource returns the plural, as used in paths and RBAC rules.
func (k Kind) Resource() string { return k.names[1] }

// NewObject returns an empty object.
func (k Kind) NewObject() client.Object { return k.newObject() }

// NewList returns an empty list.
func (k Kind) NewList() client.ObjectList { return k.newList() }

// CanFlip reports whether FlipSwitch supports the part. Some switches are only shown.
func (k Kind) CanFlip(part string) bool { return slices.Contains(k.parts, part) }

// DescribeSwitches returns the switches of an object. It may modify the object.
func (k Kind) DescribeSwitches(obj client.Object) []Switch {
	var switches []Switch
	for _, r := range k.describe(obj) {
		switches = append(switches, Switch{r})
	}
	return switches
}

// NewScheme returns a scheme with the kinds that need no StopAdapter.
func NewScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	for _, k := range stoppableKinds() {
		if err := k.addToScheme(known); err != nil {
			return nil, fmt.Errorf("register %s: %w", k.gvk.Kind, err)
		}
	}
	return known, nil
}

// Flip is a request to change one switch.
type Flip struct {
	Kind                  Kind
	Namespace, Name, Part string
	// IsStop requests a stop; otherwise the request is a start.
	IsStop bool
	// Reason and Until are the reason and the end of a stop; both may be empty.
	Reason, Until string
	// FieldManager is the field manager of the write.
	FieldManager string
}

// Validate returns an error for an invalid request before any call of the API server.
func (f Flip) Validate(now time.Time) error {
	switch {
	case !f.Kind.CanFlip(f.Part):
		return exit.WrongUsage("expected one of the switches %s of a %s, found %q", strings.Join(f.Kind.parts, ", "), f.Kind.gvk.Kind, f.Part)
	case f.Name == "" || f.Namespace == "":
		return exit.WrongUsage("expected a name and a namespace, found none")
	case f.Until == "":
		return nil
	}
	_, err := moco.ParseUntil(f.Until, now)
	return err
}

// FlipSwitch writes the same change as the verbs stop and start, with the rights of the client. changed is false if
// there was nothing to do.
func FlipSwitch(ctx context.Context, kube client.Client, now clock.PassiveClock, f Flip) (changed bool, err error) {
	if err := f.Validate(now.Now()); err != nil {
		return false, err
	}
	v := &verbCommand{commands: &commands{clock: now}, verb: startVerb, fieldManager: f.FieldManager}
	if f.IsStop {
		v.verb, v.reason, v.until, v.saidReason, v.saidUntil = stopVerb, f.Reason, f.Until, true, f.Until != ""
	}
	r := v.change(ctx, &kubeClient{WithWatch: unwatchedClient{kube}}, target{kind: f.Kind.stoppableKind, namespace: f.Namespace, name: f.Name, part: f.Part})
	return r.Changed, r.err
}

// unwatchedClient implements WithWatch for commands that do not watch.
type unwatchedClient struct{ client.Client }

// Watch implements client.WithWatch.
func (unwatchedClient) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("expected a command that does not watch, found one that watches")
}
