// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/cli/moco"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// fieldManager is the field manager of the plugin's writes.
const fieldManager = programName

// change writes the request to one object, and retries after a conflict. A concurrent write does not prevent a stop or
// a start, because neither depends on the present value.
func (v *verbCommand) change(ctx context.Context, kube *kubeClient, t target) *verbResult {
	r := &verbResult{Namespace: t.namespace, Kind: t.kind.gvk.Kind, Name: t.name, Part: t.part, Wanted: v.verb.pastParticiple(), target: t}
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
	r.wasAlready = v.verb == stopVerb && r.before.isAsked || v.verb == startVerb && !r.before.Stopped
	after := before.DeepCopyObject().(client.Object)
	if err := v.apply(after, r); err != nil {
		return err
	}
	patch := client.MergeFrom(before)
	if v.verb == extendVerb { // Detect a stop that has ended since the read: it must not begin again.
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

// noteRevision stores the revision that the restart began. The admission webhook has set it in the response to the
// patch.
func (r *verbResult) noteRevision(before, after client.Object) error {
	last, _ := r.target.kind.readRevisions(before)
	r.revision, _ = r.target.kind.readRevisions(after)
	switch {
	case r.revision > last:
		return nil
	case r.before.Stopped:
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: expected a started app, found a stopped one, which has nothing to restart; %s starts it", r.target, r.before.startCommand())}
	default:
		return fmt.Errorf("%s: expected the admission of apps to begin a revision after %d, found none to wait for; see docs/install.md", r.target, last)
	}
}

// apply changes the object as the verb requires.
func (v *verbCommand) apply(obj client.Object, r *verbResult) error {
	t, now := r.target, v.clock.Now()
	says := t.kind.annotationsOf(t.part)
	presentUntil := obj.GetAnnotations()[says.Until]
	switch v.verb {
	case restartVerb:
		t.kind.restart(obj, now)
		return nil
	case startVerb:
		if r.before.slumber != "" {
			return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
				"%s: expected a manual stop, found that Slumber %s stops it; %s starts it", t, r.before.slumber, r.before.skipCommand())}
		}
		t.kind.start(obj, t.part, now)
		return nil
	case extendVerb:
		if err := v.refuseExtension(r); err != nil {
			return err
		}
	case stopVerb:
		if !r.before.isAsked { // Drop the reason and the end of an earlier stop.
			t.kind.stop(obj, t.part, now)
		}
	}
	if v.saidReason {
		setAnnotation(obj, says.Reason, v.reason)
	}
	if v.saidUntil {
		text, err := v.untilText(presentUntil, r.before.stops)
		if err != nil {
			return err
		}
		setAnnotation(obj, says.Until, text)
	}
	annotations := obj.GetAnnotations()
	r.Reason, r.Until = annotations[says.ReasonAnnotation(annotations)], annotations[says.UntilAnnotation(annotations)]
	return nil
}

// refuseExtension returns an error if the object is not stopped, or if the new end is not later than the present one.
func (v *verbCommand) refuseExtension(r *verbResult) error {
	if !r.before.isAsked {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf("%s: expected a stop in effect, found none; kubectl torpor stop begins one",
			r.target)}
	}
	until, err := moco.ParseUntil(v.until, v.clock.Now())
	if err != nil {
		return err
	}
	if present := r.before.Until; present != nil && !until.After(present.Time) {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%s: expected a time after the current end of the stop, %s, found %s; kubectl torpor stop sets an earlier end",
			r.target, formatTime(present), until.UTC().Format(time.RFC3339))}
	}
	return nil
}

// untilText returns the value of the annotation. A duration is kept, because a policy can evaluate it. But a duration
// counts from its first write only: if the annotation or the record holds the same one already, or if a stop is
// extended, the resulting time is written instead.
func (v *verbCommand) untilText(present string, stops stoprecord.Records) (string, error) {
	until, err := moco.ParseUntil(v.until, v.clock.Now())
	if err != nil {
		return "", err
	}
	newest := stops.RequestedStop()
	isThere := present == v.until || newest != nil && newest.RequestedUntil == v.until
	if _, err := time.Parse(time.RFC3339, v.until); err == nil || v.verb == extendVerb || isThere {
		return until.UTC().Format(time.RFC3339), nil
	}
	return v.until, nil
}

// setAnnotation writes an annotation, or removes it if the value is empty.
func setAnnotation(obj client.Object, name, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[name] = value; value == "" {
		delete(annotations, name)
	}
	obj.SetAnnotations(annotations)
}

// getObject reads the object of a target.
func (kube *kubeClient) getObject(ctx context.Context, t target) (client.Object, error) {
	obj, what := t.kind.newObject(), fmt.Sprintf("%s %q", t.kind.gvk.Kind, t.namespace+"/"+t.name)
	err := kube.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, obj)
	switch {
	case connection.IsKindNotServed(err):
		return nil, fmt.Errorf("read %s: expected the API server to serve %s, found that it does not; install the CRD", what, t.kind.gvk.GroupVersion())
	case k8serrors.IsNotFound(err):
		return nil, fmt.Errorf("expected %s, found none; kubectl torpor status lists those of a namespace", what)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", what, err)
	default:
		return obj, nil
	}
}

// printResult prints the result for one object: the request, or with --wait the state that was reached.
func (v *verbCommand) printResult(r *verbResult) {
	if v.output != "" || r.err != nil {
		return
	}
	said, isUnchanged := "", r.wasAlready && !r.Changed
	if r.Until != "" && (v.verb == stopVerb || v.verb == extendVerb) {
		said = " until " + formatCell(r.Until)
		if _, err := time.ParseDuration(r.Until); err == nil {
			said = " for " + formatCell(r.Until)
		}
		if isUnchanged && r.before.Until != nil { // A duration would read as time left.
			said = " until " + stoprecord.FormatEnd(r.before.Until, v.clock.Now())
		}
	}
	wish := "asked to " + string(v.verb)
	switch {
	case r.Reached != nil && *r.Reached:
		wish = r.before.stateWord(v.verb)
	case isUnchanged:
		wish = "is already " + r.before.stateWord(v.verb)
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
