// SPDX-License-Identifier: Apache-2.0

// Package status writes the status of an object without changing the fields and conditions of other controllers. It
// keeps in an annotation the fields that the served CustomResourceDefinition drops.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// Storage defines how the status of a kind is stored, and records which fields the served schema drops. The zero value
// is for a status with a single writer and without fields in an annotation.
type Storage[T client.Object] struct {
	// IsShared is true if several controllers write this status, each its own fields and conditions, so that a write
	// of another controller is not a conflict.
	IsShared bool
	// Conditions, if set, returns the conditions in which to report fields that the served schema does not keep. An
	// event reports them in any case.
	Conditions func(obj T) *[]metav1.Condition
	// Remember, if set, returns the fields of the status that later decisions use. If the served schema drops them,
	// they are kept in the writer's annotation, from which a pass restores them before it observes.
	Remember func(obj T) map[string]any
	// RemembersAlways keeps these fields in the annotation even if the served schema keeps them, because the schema
	// may be replaced at any time.
	RemembersAlways bool
	// RemembersIfDropped are fields that the annotation contains only if the schema drops them, regardless of
	// RemembersAlways. They change together with Recoverable fields, and must not cause a separate write.
	RemembersIfDropped []string
	// Recoverable are paths of the status whose values later passes can observe again. If the schema keeps these paths,
	// the annotation need not contain them.
	Recoverable []string

	schema servedSchema
}

// Writer writes objects of a kind.
type Writer[T client.Object] struct {
	Client client.Client
	Clock  clock.PassiveClock
	// Owner is the field manager, and the suffix of the annotation's key.
	Owner string
	// New returns an empty object.
	New func() T
}

// Written is the result of writing a status.
type Written struct {
	// HasChanged is true if anything was written.
	HasChanged bool
	// IsStored is true if the status was written and every field was kept, whether or not the annotation was
	// written.
	IsStored bool
	// firstLost are the fields that this write lost and that were not known to be lost before.
	firstLost []string
	// unkept are the fields that neither the status nor an annotation keeps.
	unkept []string
}

// Events returns the event about newly lost fields, which is emitted once for each field and process.
func (w Written) Events() []decision.Event {
	if len(w.firstLost) == 0 {
		return nil
	}
	return []decision.Event{{Warning: true, Reason: torporv1alpha1.SchemaLacksFieldReason, Action: "SaveStatus", Note: describeLostFields(w.firstLost)}}
}

// Backoff returns the requeue interval of a pass: after, or a longer one if that is short and the report of the pass
// was not stored.
func (s *Storage[T]) Backoff(req ctrl.Request, rule string, after time.Duration, done Written) time.Duration {
	isHot := after > 0 && after < hotInterval && len(done.unkept) > 0
	return max(after, s.schema.backoff(req, rule, isHot))
}

// Forget frees the memory that is held for an object that is gone.
func (s *Storage[T]) Forget(req ctrl.Request) { s.schema.forget(req) }

// Write writes the differences from the stored object, detects fields that the response lacks, and updates the
// annotation with the remembered fields. It sets the resource version of after to that of the last write. If
// remembersLater is true, the annotation is left to a later pass, as long as the status keeps the remembered fields.
func (s *Storage[T]) Write(ctx context.Context, w Writer[T], stored, after T, remembersLater bool) (Written, error) {
	var done Written
	for {
		s.reportLostFields(after, w.Clock.Now())
		write, err := s.patch(ctx, w, stored, after)
		done.HasChanged, done.unkept = done.HasChanged || write.HasChanged, append(done.unkept, write.unkept...)
		if err != nil {
			return done, err
		}
		if len(write.firstLost) == 0 {
			break
		}
		// Write again, to report the lost fields. They are not sent again, so the loop ends.
		done.firstLost = append(done.firstLost, write.firstLost...)
		stored, _ = after.DeepCopyObject().(T)
	}
	done.IsStored = done.HasChanged && len(done.unkept) == 0
	annotated, kept, err := s.remember(ctx, w, after, remembersLater)
	done.HasChanged = done.HasChanged || annotated
	// Conditions are only reports: no decision waits for them.
	kept = append(kept, conditionsField)
	done.unkept = slices.DeleteFunc(done.unkept, func(path string) bool { return slices.Contains(kept, topLevelField(path)) })
	return done, err
}

// patch writes the status if it differs. It returns a conflict if the object was changed since it was read. For most
// patches of a shared status, only a condition that has moved to another index is a conflict.
func (s *Storage[T]) patch(ctx context.Context, w Writer[T], stored, after T) (Written, error) {
	if statusannotation.HasSameStatus(stored, after) {
		return Written{}, nil // Most passes wait for something and change nothing.
	}
	old, err := statusannotation.FieldsOf(stored)
	if err != nil {
		return Written{}, err
	}
	wanted, err := statusannotation.FieldsOf(after)
	if err != nil {
		return Written{}, err
	}
	write, now := Written{}, w.Clock.Now()
	everything := buildStatusPatch(old, wanted)
	for _, path := range s.schema.lostFields(now) {
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
	if s.IsShared && patch.needsNoVersion() {
		version = ""
	}
	data, form, err := patch.encode(version)
	if err != nil {
		return write, err
	}
	answer := w.newLike(after)
	if err := w.Client.Status().Patch(ctx, answer, client.RawPatch(form, data)); err != nil {
		return write, asConflict(err)
	}
	after.SetResourceVersion(answer.GetResourceVersion())
	stands, err := statusannotation.FieldsOf(answer)
	if err != nil {
		return write, err
	}
	lost := findLostFields("", patch.written, stands)
	write.HasChanged, write.firstLost = true, s.schema.learn(patch.written, lost, now)
	write.unkept = append(write.unkept, lost...)
	return write, nil
}

// newLike returns an empty object with the same name, into which a response is decoded. If it were decoded into the
// written object, fields that the response lacks would keep their values.
func (w Writer[T]) newLike(obj T) T {
	empty := w.New()
	empty.SetNamespace(obj.GetNamespace())
	empty.SetName(obj.GetName())
	return empty
}

// asConflict returns a conflict for a patch whose tests failed because another client has written the object, and
// any other error unchanged.
func asConflict(err error) error {
	status, ok := errors.AsType[*k8serrors.StatusError](err)
	// If the schema rejects the object, the error is Invalid too, but contains the object's name.
	if ok && k8serrors.IsInvalid(err) && (status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "") {
		return k8serrors.NewConflict(schema.GroupResource{}, "", err)
	}
	return err
}

// reportLostFields reports in a condition which fields the schema drops. Until the first write of the process, the
// existing condition remains.
func (s *Storage[T]) reportLostFields(obj T, now time.Time) {
	if s.Conditions == nil {
		return
	}
	conditions := s.Conditions(obj)
	lost, isTried := s.schema.report()
	switch {
	case len(lost) > 0:
		report := decision.False(torporv1alpha1.SchemaLacksFieldReason, describeLostFields(lost))
		if size := s.sizeToRemember(obj, lost); size > statusannotation.MaxSize {
			report = decision.False(torporv1alpha1.TooLargeToRememberReason, describeOversize(lost, size))
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: torporv1alpha1.StatusFullyStoredCondition, Status: report.Status, Reason: report.Reason, Message: report.Message,
			ObservedGeneration: obj.GetGeneration(), LastTransitionTime: metav1.NewTime(now),
		})
	case isTried:
		meta.RemoveStatusCondition(conditions, torporv1alpha1.StatusFullyStoredCondition)
	}
}

func describeLostFields(lost []string) string {
	return "Expected the served CustomResourceDefinition to keep every field of the status, found that it drops status." +
		strings.Join(lost, ", status.") + "; this CustomResourceDefinition belongs to another project or another version of Torpor, " +
		"see docs/install-beside-upstream.md"
}

func describeOversize(lost []string, size int) string {
	return fmt.Sprintf("Expected the status fields that the served CustomResourceDefinition drops to fit into an annotation of %d KiB, found %d KiB in status.%s: "+
		"actions that depend on these fields are not performed; install Torpor's CustomResourceDefinition, "+
		"see docs/install-beside-upstream.md",
		statusannotation.MaxSize>>10, size>>10, strings.Join(lost, ", status."))
}

// sizeToRemember returns the size that the annotation needs for the remembered fields that the schema drops; zero if
// it drops none.
func (s *Storage[T]) sizeToRemember(obj T, lost []string) int {
	if s.Remember == nil {
		return 0
	}
	remembered := s.Remember(obj)
	maps.DeleteFunc(remembered, func(field string, _ any) bool {
		return !slices.ContainsFunc(lost, func(path string) bool { return topLevelField(path) == field })
	})
	data, err := json.Marshal(remembered)
	if err != nil || len(remembered) == 0 {
		return 0
	}
	return len(data)
}

// remember writes the fields that must be remembered into the controller's annotation, and returns the fields in the
// annotation. If mayBeLater is true, it leaves the write to a later pass as long as the status keeps the fields.
func (s *Storage[T]) remember(ctx context.Context, w Writer[T], obj T, mayBeLater bool) (changed bool, kept []string, err error) {
	if s.Remember == nil {
		return false, nil, nil
	}
	key := statusannotation.KeyOf(w.Owner)
	is := obj.GetAnnotations()[key]
	var had map[string]any
	_ = json.Unmarshal([]byte(is), &had) // An annotation that cannot be read is replaced.
	remembered := s.Remember(obj)
	for field := range remembered {
		_, isKept := had[field]
		isAlways := s.RemembersAlways && !slices.Contains(s.RemembersIfDropped, field)
		if !isAlways && !s.schema.mayDrop(field, isKept) {
			delete(remembered, field)
		}
	}
	wanted := ""
	if len(remembered) > 0 {
		data, err := json.Marshal(remembered)
		if err != nil {
			return false, nil, fmt.Errorf("encode the fields that the schema drops: %w", err)
		}
		if wanted = string(data); len(wanted) > statusannotation.MaxSize {
			wanted, remembered = "", nil
		}
	}
	for field := range remembered {
		kept = append(kept, field)
	}
	if wanted == is || mayBeLater && s.schema.keepsAll(kept) ||
		s.schema.keepsAll(s.Recoverable) && lacksOnly(had, wanted, s.Recoverable) {
		return false, kept, nil
	}
	var annotation any // Null removes the annotation.
	if wanted != "" {
		annotation = wanted
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": obj.GetResourceVersion(), "annotations": map[string]any{key: annotation}}})
	if err != nil {
		return false, nil, fmt.Errorf("encode the fields that the schema drops: %w", err)
	}
	answer := w.newLike(obj)
	if err := w.Client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, data), client.FieldOwner(w.Owner)); err != nil {
		return false, nil, fmt.Errorf("remember the status in the annotation %s: %w", key, err)
	}
	obj.SetResourceVersion(answer.GetResourceVersion())
	return true, kept, nil
}

// lacksOnly reports whether fields equals the JSON object wanted without the given paths.
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
