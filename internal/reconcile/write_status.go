// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// statusWrite is the result of writing a status.
type statusWrite struct {
	// changed is true if anything was written.
	changed bool
	// isStored is true if the status was written and keeps everything, regardless of the annotation.
	isStored bool
	// firstLost are the fields that this write lost and that were not known to be lost.
	firstLost []string
	// unkept are the fields that neither the status nor an annotation keeps.
	unkept []string
}

// writeStatus writes the differences from the stored object, checks the answer for them, and remembers the fields
// that it lacks. The resource version of after becomes that of the last write.
func (p *Pass[T, S, P]) writeStatus(ctx context.Context, stored, after T, remembersLater bool) (statusWrite, error) {
	var done statusWrite
	for {
		p.reportLostFields(after)
		write, err := p.patchStatus(ctx, stored, after)
		done.changed, done.unkept = done.changed || write.changed, append(done.unkept, write.unkept...)
		if err != nil {
			return done, err
		}
		if len(write.firstLost) == 0 {
			break
		}
		// Write again, to report the loss. Lost fields are no longer sent, so that this ends.
		done.firstLost = append(done.firstLost, write.firstLost...)
		stored, _ = after.DeepCopyObject().(T)
	}
	done.isStored = done.changed && len(done.unkept) == 0
	annotated, kept, err := p.rememberStatus(ctx, after, remembersLater)
	done.changed = done.changed || annotated
	// Conditions are reports, and no decision waits for them.
	kept = append(kept, conditionsField)
	done.unkept = slices.DeleteFunc(done.unkept, func(path string) bool { return slices.Contains(kept, topLevelField(path)) })
	return done, err
}

// patchStatus writes only if the object was not written since it was read. If controllers share the status, this
// applies only to what they share.
func (p *Pass[T, S, P]) patchStatus(ctx context.Context, stored, after T) (statusWrite, error) {
	if statusannotation.HasSameStatus(stored, after) {
		return statusWrite{}, nil // Most passes wait for something and change nothing.
	}
	old, err := statusannotation.FieldsOf(stored)
	if err != nil {
		return statusWrite{}, err
	}
	wanted, err := statusannotation.FieldsOf(after)
	if err != nil {
		return statusWrite{}, err
	}
	write, now := statusWrite{}, p.Clock.Now()
	everything := buildStatusPatch(old, wanted)
	for _, path := range p.schema.lostFields(now) {
		if _, isWanted := everything.written[topLevelField(path)]; isWanted {
			write.unkept = append(write.unkept, path)
		}
		removeField(old, path)
		removeField(wanted, path)
	}
	patch := buildStatusPatch(old, wanted)
	if len(patch.operations) == 0 {
		return write, nil
	}
	version := stored.GetResourceVersion()
	if p.SharesStatus && patch.hasTests() {
		version = ""
	}
	data, form, err := patch.encode(version)
	if err != nil {
		return write, err
	}
	answer := p.newLike(after)
	if err := p.Client.Status().Patch(ctx, answer, client.RawPatch(form, data)); err != nil {
		return write, asConflict(err)
	}
	after.SetResourceVersion(answer.GetResourceVersion())
	stands, err := statusannotation.FieldsOf(answer)
	if err != nil {
		return write, err
	}
	lost := findLostFields("", patch.written, stands)
	write.changed, write.firstLost = true, p.schema.learn(patch.written, lost, now)
	write.unkept = append(write.unkept, lost...)
	return write, nil
}

// newLike returns an empty object of the same name for an answer: an answer that is decoded into the written object
// would seem to have all of its fields.
func (p *Pass[T, S, P]) newLike(obj T) T {
	empty := p.New()
	empty.SetNamespace(obj.GetNamespace())
	empty.SetName(obj.GetName())
	return empty
}

// asConflict returns a conflict for a patch that no longer fits the object: another client has written it.
func asConflict(err error) error {
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	// An object that the schema refuses is Invalid too, and named.
	if ok && k8serrors.IsInvalid(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "") {
		return k8serrors.NewConflict(schema.GroupResource{}, "", err)
	}
	return err
}

// reportLostFields reports in a condition which fields the schema drops. While no pass has tried since the start of
// the process, the earlier report stays.
func (p *Pass[T, S, P]) reportLostFields(obj T) {
	if p.Conditions == nil {
		return
	}
	conditions := p.Conditions(obj)
	lost, isTried := p.schema.report()
	switch {
	case len(lost) > 0:
		report := decision.False(torporv1alpha1.SchemaLacksFieldReason, describeLostFields(lost))
		if size := p.sizeToRemember(obj, lost); size > statusannotation.MaxSize {
			report = decision.False(torporv1alpha1.TooLargeToRememberReason, describeOversize(lost, size))
		}
		SetConditions(conditions, map[string]decision.Condition{torporv1alpha1.StatusFullyStoredCondition: report}, obj.GetGeneration(), p.Clock)
	case isTried:
		meta.RemoveStatusCondition(conditions, torporv1alpha1.StatusFullyStoredCondition)
	}
}

func describeLostFields(lost []string) string {
	return "Expected the served CustomResourceDefinition to keep every field of the status, found that it drops status." +
		strings.Join(lost, ", status.") + "; it is another project's, see docs/install-beside-upstream.md"
}

func describeOversize(lost []string, size int) string {
	return fmt.Sprintf("Expected the status fields that the served CustomResourceDefinition drops to fit into an annotation of %d KiB, found %d KiB in status.%s: "+
		"actions that depend on them are not taken; install Torpor's CustomResourceDefinition, see docs/install-beside-upstream.md",
		statusannotation.MaxSize>>10, size>>10, strings.Join(lost, ", status."))
}

// sizeToRemember returns the size of the annotation for the remembered fields that the schema drops; zero if it drops
// none.
func (p *Pass[T, S, P]) sizeToRemember(obj T, lost []string) int {
	if p.Remember == nil {
		return 0
	}
	remembered := p.Remember(obj)
	maps.DeleteFunc(remembered, func(field string, _ any) bool {
		return !slices.ContainsFunc(lost, func(path string) bool { return topLevelField(path) == field })
	})
	data, err := json.Marshal(remembered)
	if err != nil || len(remembered) == 0 {
		return 0
	}
	return len(data)
}

// rememberStatus writes the remembered fields that the schema does not keep into the controller's annotation, and
// returns the fields in the annotation. A write that may come later waits for another pass as long as the status
// keeps the fields.
func (p *Pass[T, S, P]) rememberStatus(ctx context.Context, obj T, mayBeLater bool) (changed bool, kept []string, err error) {
	if p.Remember == nil {
		return false, nil, nil
	}
	key := statusannotation.KeyOf(p.Owner)
	is := obj.GetAnnotations()[key]
	var had map[string]any
	_ = json.Unmarshal([]byte(is), &had) // An annotation that cannot be read is replaced.
	remembered := p.Remember(obj)
	for field := range remembered {
		_, isKept := had[field]
		if !p.RemembersAlways && !p.schema.mayDrop(field, isKept) {
			delete(remembered, field)
		}
	}
	wanted := ""
	if len(remembered) > 0 {
		data, err := json.Marshal(remembered)
		if err != nil {
			return false, nil, fmt.Errorf("encode what is remembered of the status: %w", err)
		}
		if wanted = string(data); len(wanted) > statusannotation.MaxSize {
			wanted, remembered = "", nil
		}
	}
	for field := range remembered {
		kept = append(kept, field)
	}
	if wanted == is || mayBeLater && p.schema.keepsAll(kept) ||
		p.schema.keepsAll(p.Recoverable) && lacksOnly(had, wanted, p.Recoverable) {
		return false, kept, nil
	}
	var annotation any // Null removes it.
	if wanted != "" {
		annotation = wanted
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": obj.GetResourceVersion(), "annotations": map[string]any{key: annotation}}})
	if err != nil {
		return false, nil, fmt.Errorf("encode what is remembered of the status: %w", err)
	}
	answer := p.newLike(obj)
	if err := p.Client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, data), client.FieldOwner(p.Owner)); err != nil {
		return false, nil, fmt.Errorf("remember the status in the annotation %s: %w", key, err)
	}
	obj.SetResourceVersion(answer.GetResourceVersion())
	return true, kept, nil
}

// lacksOnly reports whether the fields of a JSON object are the wanted ones without these paths.
func lacksOnly(fields map[string]any, wanted string, paths []string) bool {
	var wantedFields map[string]any
	if len(fields) == 0 || len(paths) == 0 || json.Unmarshal([]byte(wanted), &wantedFields) != nil {
		return false
	}
	for _, path := range paths {
		removeField(wantedFields, path)
	}
	return reflect.DeepEqual(fields, wantedFields)
}
