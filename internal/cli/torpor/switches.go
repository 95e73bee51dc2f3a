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
	"github.com/torpor-dev/torpor/internal/stopadapter"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

// Switch is a row of `kubectl torpor status`, for what shows it elsewhere than in a terminal.
type Switch struct{ stopRow }

// IsStuck reports whether it waits for something that does not come by itself.
func (s Switch) IsStuck() bool { return strings.HasPrefix(s.Next, stuckPrefix) || s.refusal != "" }

// IsAsleepBySchedule reports whether a Slumber stops it, which no start ends: kubectl torpor skip does.
func (s Switch) IsAsleepBySchedule() bool { return s.Stopped && s.slumber != "" }

// WithoutHistory leaves out the earlier stops and the conditions, which are most of what a row keeps.
func (s Switch) WithoutHistory() Switch { return Switch{s.withoutHistory()} }

// Kind is a kind of objects that have switches.
type Kind struct{ stoppableKind }

// ListKinds returns the kinds that need no StopAdapter, in the order of the tables of the commands.
func ListKinds() []Kind {
	var kinds []Kind
	for _, k := range stoppableKinds() {
		kinds = append(kinds, Kind{k})
	}
	return kinds
}

// IsSwitched reports whether the kind's objects know nothing of Torpor, so that most of them are none of its business.
func (k Kind) IsSwitched() bool { return k.isSwitched }

// IsForeign reports whether a StopAdapter says how the kind's objects are stopped.
func (k Kind) IsForeign() bool { return stoppable.FindGroup(k.gvk.Kind) != k.gvk.Group }

// Name tells the kind from all others: the name of its StopAdapter, for several groups have a Cluster, or the kind itself.
func (k Kind) Name() string {
	if k.IsForeign() {
		return k.names[0]
	}
	return k.gvk.Kind
}

// HasSwitches reports whether an object has switches that are shown: of what knows nothing of Torpor, somebody has to have stopped it once.
func (k Kind) HasSwitches(obj client.Object) bool {
	return !k.isSwitched || !isUntouched(obj, stopadapter.ReadSwitch(obj))
}

// GVK is the kind as the API has it.
func (k Kind) GVK() schema.GroupVersionKind { return k.gvk }

// Resource is its plural in paths and rules.
func (k Kind) Resource() string { return k.names[1] }

// NewObject and NewList return empty ones.
func (k Kind) NewObject() client.Object { return k.newObject() }

// NewList returns an empty list.
func (k Kind) NewList() client.ObjectList { return k.newList() }

// CanFlip reports whether FlipSwitch knows the part. Some switches are only shown.
func (k Kind) CanFlip(part string) bool { return slices.Contains(k.parts, part) }

// DescribeSwitches returns the switches of an object, which it may change.
func (k Kind) DescribeSwitches(obj client.Object) []Switch {
	var switches []Switch
	for _, r := range k.describe(obj) {
		switches = append(switches, Switch{r})
	}
	return switches
}

// NewScheme knows the kinds.
func NewScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	for _, k := range stoppableKinds() {
		if err := k.addToScheme(known); err != nil {
			return nil, fmt.Errorf("register %s: %w", k.gvk.Kind, err)
		}
	}
	return known, nil
}

// Flip is what somebody asks of one switch.
type Flip struct {
	Kind                  Kind
	Namespace, Name, Part string
	// IsStop stops; otherwise it starts.
	IsStop bool
	// Reason and Until say why and until when, of a stop; both may be empty.
	Reason, Until string
	// FieldManager is the program that writes.
	FieldManager string
}

// Validate refuses what makes no sense before anything is asked of the API server.
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

// FlipSwitch writes what stop and start write, with the rights of the client. changed is false where there was nothing to do.
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

// unwatchedClient is for commands that look once.
type unwatchedClient struct{ client.Client }

// Watch implements client.WithWatch.
func (unwatchedClient) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("expected a command that looks once, found one that watches")
}
