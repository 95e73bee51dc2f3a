// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// readRelated reads objects that a plan needs, and adds them to the plan's subject.
func (kube *kubeClient) readRelated(ctx context.Context, namespace string, needed kinds.Related, s *kinds.PlanSubject) error {
	kind, err := kube.addRelatedKind(needed)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("list the %ss", kind)
	if needed.Name == "" {
		err = eachItem(ctx, kube, needed.List, func(obj client.Object) { s.Related = append(s.Related, obj) }, client.InNamespace(namespace))
	} else {
		what = fmt.Sprintf("read the %s %s", kind, needed.Name)
		if err = kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: needed.Name}, needed.Object); err == nil {
			s.Related = append(s.Related, needed.Object)
		}
	}
	if err = s.JudgeRead(needed, err); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// addRelatedKind returns a kind that a plan needs, and lets the client find it without discovery.
func (kube *kubeClient) addRelatedKind(needed kinds.Related) (string, error) {
	var of runtime.Object = needed.List
	if needed.Name != "" {
		of = needed.Object
	}
	gvk, err := apiutil.GVKForObject(of, kube.Scheme())
	if err != nil {
		return "", fmt.Errorf("find the kind of objects that the plan needs: %w", err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	kube.mapper.Add(gvk, meta.RESTScopeNamespace)
	return gvk.Kind, nil
}
