// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// OtherWriterInterval is the interval at which an object with another writer is checked again.
	OtherWriterInterval = time.Minute
	// reportInterval is the minimum time between two writes of the condition AnotherWriter, which the other writer may
	// remove.
	reportInterval = 10 * time.Minute
)

// WriterGuard prevents the passes of a feature from handling objects that the controller of another project, such as
// Hive or MOCO, writes. All passes of a feature share one WriterGuard.
type WriterGuard struct {
	// Feature is the name of the group of controllers, as in --take-over.
	Feature string
	// Signs show whether the other project runs.
	Signs *UpstreamSigns
	// TakesOver lets the feature handle every object, even one that another project writes.
	TakesOver bool

	mu       sync.Mutex
	reported map[types.UID]time.Time
}

// yield reports whether the pass must end, because the controller of another project writes the object or because the
// condition AnotherWriter was just removed. It sets this condition while the other controller writes. The condition has
// its own field manager and is written at most once per reportInterval, so that the two controllers do not overwrite
// each other in a loop.
func (p *Pass[T, S, P]) yield(ctx context.Context, obj T) (bool, ctrl.Result, error) {
	if p.Guard == nil {
		return false, ctrl.Result{}, nil
	}
	now := p.Clock.Now()
	other := p.Guard.FindOther(ctx, obj, now)
	if other == "" {
		return p.clearReport(ctx, obj)
	}
	wait := ctrl.Result{RequeueAfter: OtherWriterInterval}
	message := fmt.Sprintf("%s. %s does not change the object: stop the other controller and set the annotation %s to \"true\", or run the manager with --take-over=%s",
		other, p.Guard.reportPrefix(), torporv1alpha1.TakeOverAnnotation, p.Guard.Feature)
	conditions, err := readConditions(obj)
	if err != nil || !p.Guard.mayReport(obj.GetUID(), conditions, message, now) {
		return true, wait, err
	}
	report := metav1.Condition{
		Type: torporv1alpha1.AnotherWriterCondition, Status: metav1.ConditionTrue, Reason: torporv1alpha1.AnotherWriterReason, Message: message,
		ObservedGeneration: obj.GetGeneration(), LastTransitionTime: metav1.NewTime(now),
	}
	if err := p.patchReport(ctx, obj, conditions, &report); err != nil {
		p.Guard.forgetReport(obj.GetUID())
		if k8serrors.IsConflict(err) {
			return true, ctrl.Result{RequeueAfter: otherWriterRetry}, nil
		}
		return true, ctrl.Result{}, err
	}
	EmitEvents(p.Recorder, obj, []decision.Event{{Reason: torporv1alpha1.AnotherWriterReason, Action: "Yield", Warning: true, Note: message}})
	return true, wait, nil
}

// FindOther describes the other writer of an object and the evidence for it; it returns an empty string if Torpor
// may write.
func (g *WriterGuard) FindOther(ctx context.Context, obj client.Object, now time.Time) string {
	if g == nil {
		return ""
	}
	o := otherwriter.Observed{
		Upstream: g.Signs.Upstream, Fields: obj.GetManagedFields(), Finalizers: obj.GetFinalizers(), IsDeleting: !obj.GetDeletionTimestamp().IsZero(),
		IsTakenOver: g.TakesOver || obj.GetAnnotations()[torporv1alpha1.TakeOverAnnotation] == "true",
	}
	if !g.TakesOver {
		o.Running, o.Webhook = g.Signs.read(ctx, now)
	}
	return otherwriter.FindWriter(o)
}

// HasUpstreamWritten reports whether the managed fields of an object name a manager of the other project, even if
// Torpor has taken the object over.
func (g *WriterGuard) HasUpstreamWritten(obj client.Object) bool {
	return g != nil && g.Signs.Upstream.HasWritten(obj.GetManagedFields())
}

// clearReport removes the condition AnotherWriter of this feature once Torpor may handle the object.
func (p *Pass[T, S, P]) clearReport(ctx context.Context, obj T) (bool, ctrl.Result, error) {
	// Few objects have managed fields of this manager; for all other objects, the conditions are not decoded.
	if !slices.ContainsFunc(obj.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == otherwriter.FieldManager }) {
		return false, ctrl.Result{}, nil
	}
	conditions, err := readConditions(obj)
	at := indexOfReport(conditions)
	if err != nil || at < 0 || !strings.Contains(conditions[at].Message, p.Guard.reportPrefix()) {
		return false, ctrl.Result{}, err
	}
	p.Guard.forgetReport(obj.GetUID())
	if err = p.patchReport(ctx, obj, conditions, nil); k8serrors.IsConflict(err) {
		err = nil
	}
	return true, ctrl.Result{RequeueAfter: otherWriterRetry}, err
}

// otherWriterRetry is the delay before the next pass after the condition was removed, or its write failed with a
// conflict.
const otherWriterRetry = time.Second

// patchReport adds or replaces the condition, or removes it if report is nil. It changes the condition by its index,
// because the other writer's conditions may have fields that Torpor's type lacks. It requires the resource version,
// because another feature may report at the same time.
func (p *Pass[T, S, P]) patchReport(ctx context.Context, obj T, conditions []metav1.Condition, report *metav1.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	at := indexOfReport(conditions)
	place := fmt.Sprintf("/status/conditions/%d", at)
	kind, operations := types.JSONPatchType, []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": obj.GetResourceVersion()}}
	var patch any
	switch {
	case report == nil:
		operations = append(operations, map[string]any{"op": "remove", "path": place})
	case at >= 0:
		operations = append(operations, map[string]any{"op": "replace", "path": place, "value": report})
	case len(conditions) > 0:
		operations = append(operations, map[string]any{"op": "add", "path": "/status/conditions/-", "value": report})
	default:
		// The whole status may be missing; a merge patch creates it, with the fields that its schema requires.
		var err error
		if patch, err = firstStatus(obj, report); err != nil {
			return err
		}
		kind = types.MergePatchType
	}
	if patch == nil {
		patch = operations
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode the report about another writer: %w", err)
	}
	err = p.Client.Status().Patch(ctx, copyOf(obj), client.RawPatch(kind, text), client.FieldOwner(otherwriter.FieldManager))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("report another writer: %w", err)
	}
	return nil
}

// firstStatus returns a merge patch with the whole status and the condition. The status had no condition before. Its
// other fields are included, because the schema may require them.
func firstStatus(obj client.Object, report *metav1.Condition) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	status, _ := content["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["conditions"] = []metav1.Condition{*report}
	return map[string]any{"metadata": map[string]any{"resourceVersion": obj.GetResourceVersion()}, "status": status}, nil
}

// copyOf copies an object, so that decoding the response of a patch does not change the cached object.
func copyOf[T client.Object](obj T) T {
	c, _ := obj.DeepCopyObject().(T)
	return c
}

func readConditions(obj client.Object) ([]metav1.Condition, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	var content struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("decode the conditions: %w", err)
	}
	return content.Status.Conditions, nil
}

func indexOfReport(conditions []metav1.Condition) int {
	return slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == torporv1alpha1.AnotherWriterCondition })
}

// reportPrefix identifies the feature in the message of a report, because several features may reconcile one kind.
func (g *WriterGuard) reportPrefix() string { return "Torpor's " + g.Feature }

// mayReport reports whether the condition must be written: it is not written if it is up to date, if another feature
// has already reported, or if the last write was less than reportInterval ago.
func (g *WriterGuard) mayReport(uid types.UID, conditions []metav1.Condition, message string, now time.Time) bool {
	if at := indexOfReport(conditions); at >= 0 && (conditions[at].Message == message || !strings.Contains(conditions[at].Message, g.reportPrefix())) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, ok := g.reported[uid]; ok && now.Sub(last) < reportInterval {
		return false
	}
	if g.reported == nil {
		g.reported = map[types.UID]time.Time{}
	}
	for other, last := range g.reported {
		if now.Sub(last) >= reportInterval {
			delete(g.reported, other)
		}
	}
	g.reported[uid] = now
	return true
}

func (g *WriterGuard) forgetReport(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reported, uid)
}
