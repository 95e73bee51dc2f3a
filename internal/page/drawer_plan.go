// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// maxRelated limits the number of objects of one kind that a plan reads.
const maxRelated = 500

// planView is the plan for the next stop or start of an object, with the same content as kubectl torpor plan.
type planView struct {
	// IsStart reports whether a start is planned.
	IsStart  bool
	Effects  []string
	WakeBy   *timeView
	Findings []preflight.Finding
	// Note is the reason why there is no plan.
	Note string
}

// plan returns a plan for the start of a stopped object, or for the stop of any other object.
func (s *Server) plan(
	ctx context.Context, q detailsRequest, listed *listedSwitch, row kinds.Row, obj client.Object,
) (planView, error) {
	planner, isPlanned := listed.kind.Definition.(kinds.Planner)
	part := listed.kind.FindPart(row.Part)
	if !isPlanned || part.Stop == nil {
		return planView{Note: "This part has no plan of its own."}, nil
	}
	subject := kinds.PlanSubject{Object: obj, Part: row.Part, StartCommand: row.StartCommand()}
	for _, needed := range planner.ListRelated(obj) {
		err := readRelated(ctx, q.caller.Client, row.Namespace, needed, &subject)
		if k8serrors.IsForbidden(err) {
			return planView{Note: "You may not read the objects that a plan needs."}, nil
		}
		if err != nil {
			return planView{}, err
		}
	}
	now := s.Clock.Now()
	made := planner.Plan(subject, preflight.PlanRequest{
		IsStart: row.Stopped, Now: now, Record: row.Stops, SkipCommand: row.SkipCommand(), Zone: q.zone,
		UntilAnnotation: part.Annotations.UntilAnnotation(obj.GetAnnotations()),
	})
	return planView{
		IsStart: row.Stopped, Effects: made.Effects, WakeBy: newTimeView(made.WakeBy),
		Findings: preflight.Join(made.Findings, part.JudgeController(s.inventory.readActing(), row.Namespace)),
	}, nil
}

// readRelated reads objects that a plan needs, and adds them to the plan's subject.
func readRelated(
	ctx context.Context, kube client.Client, namespace string, needed kinds.Related, subject *kinds.PlanSubject,
) error {
	var of runtime.Object = needed.List
	if needed.Name != "" {
		of = needed.Object
	}
	if err := addToMapper(kube, of, meta.RESTScopeNamespace); err != nil {
		return err
	}
	var err error
	if needed.Name != "" {
		if err = kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: needed.Name}, needed.Object); err == nil {
			subject.Related = append(subject.Related, needed.Object)
		}
	} else if err = kube.List(ctx, needed.List, client.InNamespace(namespace), client.Limit(maxRelated)); err == nil {
		err = meta.EachListItem(needed.List, func(item runtime.Object) error {
			if obj, isObject := item.(kinds.Object); isObject {
				subject.Related = append(subject.Related, obj)
			}
			return nil
		})
	}
	if err = subject.JudgeRead(needed, err); err != nil {
		return fmt.Errorf("read the objects that the plan needs: %w", err)
	}
	return nil
}

// addToMapper makes a kind available to the client of one request without discovery.
func addToMapper(kube client.Client, of runtime.Object, scope meta.RESTScope) error {
	gvk, err := apiutil.GVKForObject(of, kube.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of objects to read: %w", err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if mapper, isStatic := kube.RESTMapper().(*meta.DefaultRESTMapper); isStatic {
		mapper.Add(gvk, scope)
	}
	return nil
}
