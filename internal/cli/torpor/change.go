// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// fieldManager is the field manager of the plugin's writes.
const fieldManager = programName

// change writes the request to one object, and retries after a conflict. A concurrent write does not prevent a stop
// or a start, because neither depends on the current value.
func (v *verbCommand) change(ctx context.Context, kube *kubeClient, t target) *verbResult {
	r := &verbResult{Namespace: t.namespace, Kind: t.kind.GVK().Kind, Name: t.name, Part: t.part, Wanted: v.verb.pastParticiple(), target: t}
	r.err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return v.tryChange(ctx, kube, r) })
	return r
}

func (v *verbCommand) tryChange(ctx context.Context, kube *kubeClient, r *verbResult) error {
	before, err := kube.getObject(ctx, r.target)
	if err != nil {
		return err
	}
	r.before = r.target.findRow(before)
	r.DisplayName = r.before.DisplayName
	r.wasAlready = v.verb == stopVerb && r.before.IsAsked || v.verb == startVerb && !r.before.Stopped
	after := before.DeepCopyObject().(client.Object)
	if err := v.apply(after, r); err != nil {
		return err
	}
	patch := client.MergeFrom(before)
	if v.verb == extendVerb { // Fail if the stop has ended since the read, because an extension must not begin it again.
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if empty, err := client.MergeFrom(before).Data(after); err != nil || string(empty) == "{}" {
		return err
	}
	options := []client.PatchOption{client.FieldOwner(cmp.Or(v.fieldManager, fieldManager))}
	if v.dryRun == dryRunServer {
		options = append(options, client.DryRunAll)
	}
	if err := kube.Patch(ctx, after, patch, options...); err != nil {
		if k8serrors.IsConflict(err) {
			return err
		}
		return fmt.Errorf("%s %s: %w", v.verb, r.target, err)
	}
	r.Changed = true
	if v.verb == restartVerb && v.waits {
		return r.noteRevision(before, after)
	}
	return nil
}

// noteRevision stores the revision that the restart began. The admission webhook sets the revision, so the response
// to the patch contains it.
func (r *verbResult) noteRevision(before, after client.Object) error {
	restarter, _ := r.target.kind.Definition.(kinds.Restarter)
	last, _ := restarter.ReadRevisions(before)
	r.revision, _ = restarter.ReadRevisions(after)
	switch {
	case r.revision > last:
		return nil
	case r.before.Stopped:
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: expected a started app, found a stopped app, which has nothing to restart; %s starts the app", r.target, r.before.StartCommand())}
	default:
		return fmt.Errorf("%s: expected the admission of apps to begin a revision after %d, found no newer one; see docs/install.md", r.target, last)
	}
}

// apply changes the object as the verb requires.
func (v *verbCommand) apply(obj client.Object, r *verbResult) error {
	t, now := r.target, v.clock.Now()
	part := t.kind.FindPart(t.part)
	change := kinds.Change{IsStart: v.verb == startVerb, IsExtension: v.verb == extendVerb}
	if v.namespaces != nil {
		change.With = namespacePrefix + t.namespace
	}
	switch v.verb {
	case restartVerb:
		if restarter, isRestarted := t.kind.Definition.(kinds.Restarter); isRestarted {
			restarter.Restart(obj, now)
		}
		return nil
	case startVerb:
		if r.before.Slumber != "" {
			return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
				"%s: expected a manual stop, found that %s stops the object; %s starts the object", t, stoprecord.NameSlumber(r.before.Slumber), r.before.SkipCommand())}
		}
	case extendVerb:
		if err := v.refuseExtension(r); err != nil {
			return err
		}
	case stopVerb:
	}
	if v.saidReason {
		change.Reason = &v.reason
	}
	if v.saidUntil {
		change.Until = &v.until
	}
	if err := change.Apply(obj, part, r.before.Row, now); err != nil || change.IsStart {
		return err
	}
	annotations := obj.GetAnnotations()
	r.Reason, r.Until = annotations[part.Annotations.ReasonAnnotation(annotations)], annotations[part.Annotations.UntilAnnotation(annotations)]
	return nil
}

// refuseExtension returns an error if no manual stop is in effect, or if the new end is invalid or is not later than
// the current one.
func (v *verbCommand) refuseExtension(r *verbResult) error {
	if !r.before.IsAsked {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected a manual stop in effect, found none; kubectl torpor stop begins one",
			r.target)}
	}
	until, err := moco.ParseUntil(v.until, v.clock.Now())
	if err != nil {
		return err
	}
	if present := r.before.Until; present != nil && !until.After(present.Time) {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: expected a time after the current end of the stop, %s, found %s; kubectl torpor stop sets an earlier end",
			r.target, v.formatTime(present), v.formatTime(new(metav1.NewTime(until))))}
	}
	return nil
}

// getObject reads the object of a target.
func (kube *kubeClient) getObject(ctx context.Context, t target) (client.Object, error) {
	obj, what := t.kind.New(), fmt.Sprintf("%s %q", t.kind.GVK().Kind, t.namespace+"/"+t.name)
	err := kube.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, obj)
	switch {
	case connection.IsKindNotServed(err):
		return nil, fmt.Errorf("read %s: expected the API server to serve %s, found that it does not; install the CRD", what, t.kind.GVK().GroupVersion())
	case k8serrors.IsNotFound(err):
		return nil, fmt.Errorf("expected %s, found none; kubectl torpor status lists the objects of the namespace", what)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", what, err)
	default:
		return obj, nil
	}
}

// formatTyped formats an end that is read from an annotation. If the end is malformed, formatTyped returns its text as
// formatted by formatCell.
func (v *verbCommand) formatTyped(text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return formatCell(text)
	}
	return v.formatTime(new(metav1.NewTime(at)))
}

// printResult prints the result for one object: the request, or with --wait the state that was reached.
func (v *verbCommand) printResult(r *verbResult) {
	switch {
	case r.err != nil:
		return
	case v.output == "name":
		fmt.Fprintln(unfitted(v.Out), r.target.kind.ObjectName(r.target.name))
		return
	case v.output != "":
		return
	}
	said, isUnchanged := "", r.wasAlready && !r.Changed
	if r.Until != "" && (v.verb == stopVerb || v.verb == extendVerb) {
		said = " until " + v.formatTyped(r.Until)
		if _, err := time.ParseDuration(r.Until); err == nil {
			said = " for " + formatCell(r.Until)
		}
		// The end is printed as a time, because a duration would be understood as the remaining time.
		if isUnchanged && r.before.Until != nil {
			said = " until " + stoprecord.FormatEnd(r.before.Until, v.clock.Now())
		}
	}
	wish := "asked to " + string(v.verb)
	switch {
	case r.Reached != nil && *r.Reached:
		wish = r.target.stateWord(v.verb)
	case isUnchanged:
		wish = "is already " + r.target.stateWord(v.verb)
		if v.verb == stopVerb && r.before.Since != nil {
			said += ", by " + formatCell(r.before.By) + " " + v.formatAge(r.before.Since) + " ago"
		}
	case r.wasAlready && v.verb == stopVerb:
		wish = "still asked to stop"
	case v.verb == extendVerb:
		wish = "stays stopped"
	}
	if v.dryRun == dryRunServer {
		said += " (server dry run)"
	}
	fmt.Fprintf(v.Out, "%s %s%s\n", r.target, wish, said)
}
