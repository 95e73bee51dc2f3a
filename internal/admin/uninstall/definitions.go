// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/config/crd"
	"github.com/torpor-dev/torpor/internal/admin/crds"
)

// ErrObjectsLeft is returned before anything is changed, if definitions are to be deleted without DeletesObjects, and
// objects of their kinds exist.
var ErrObjectsLeft = errors.New("users have objects of Torpor's kinds")

// ownDefinition is a CustomResourceDefinition that Torpor has installed.
type ownDefinition struct {
	served *unstructured.Unstructured
	kind   metav1.TypeMeta
}

// listOwnDefinitions returns the served definitions to delete: those that are Torpor's, by the same criteria as `torpor
// install`.
func (o Options) listOwnDefinitions(ctx context.Context) ([]ownDefinition, error) {
	files, err := fs.Glob(crd.Files, "*.yaml")
	if err != nil || !o.DeletesCRDs {
		return nil, err
	}
	var own []ownDefinition
	for _, file := range files {
		text, err := crd.Files.ReadFile(file)
		ours, served := &apiextensionsv1.CustomResourceDefinition{}, newCRD()
		if err = errors.Join(err, yaml.Unmarshal(text, ours)); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		found, err := o.HasObject(ctx, types.NamespacedName{Name: ours.Name}, served)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		judgement, err := judge(ours, served)
		switch {
		case err != nil:
			return nil, fmt.Errorf("compare %s: %w", ours.Name, err)
		case judgement.State == crds.Foreign:
			o.Print("kept", served, "it belongs to another project")
		default:
			kind := metav1.TypeMeta{APIVersion: ours.Spec.Group + "/" + ours.Spec.Versions[0].Name, Kind: ours.Spec.Names.ListKind}
			own = append(own, ownDefinition{served, kind})
		}
	}
	return own, nil
}

func newCRD() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return u
}

func judge(ours *apiextensionsv1.CustomResourceDefinition, served *unstructured.Unstructured) (crds.Judgement, error) {
	text, err := json.Marshal(served.Object)
	typed := &apiextensionsv1.CustomResourceDefinition{}
	if err = errors.Join(err, json.Unmarshal(text, typed)); err != nil {
		return crds.Judgement{}, fmt.Errorf("decode the served definition: %w", err)
	}
	return crds.JudgeCRD(ours, typed)
}

// requireNoObjects returns an error if objects of the definitions exist, unless they should be deleted as well.
func (o Options) requireNoObjects(ctx context.Context, own []ownDefinition) error {
	for _, d := range own {
		list := &metav1.PartialObjectMetadataList{TypeMeta: d.kind}
		if err := o.Client.List(ctx, list, client.Limit(1)); err != nil {
			return fmt.Errorf("list the objects of the CRD %s: %w", d.served.GetName(), err)
		}
		if len(list.Items) > 0 && !o.DeletesObjects {
			one := list.Items[0]
			return fmt.Errorf(
				"%w: expected no objects of %s, found %s/%s; delete them, or pass --delete-objects, which deletes them with their data",
				ErrObjectsLeft, d.served.GetName(), one.Namespace, one.Name)
		}
	}
	return nil
}

// removeDefinitions deletes the definitions, and thereby all their objects, and waits until they are gone.
func (o Options) removeDefinitions(ctx context.Context, own []ownDefinition) error {
	for _, d := range own {
		if err := o.DeleteObject(ctx, d.served, ""); err != nil {
			return err
		}
	}
	if o.DryRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	for _, d := range own {
		for {
			found, err := o.HasObject(ctx, types.NamespacedName{Name: d.served.GetName()}, newCRD())
			if err == nil && !found {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(err, fmt.Errorf(
					"expected %s to be gone within %s, found objects that may have finalizers of other projects; remove those finalizers, and the deletion completes",
					d.served.GetName(), podsTimeout))
			case <-o.Clock.After(podsInterval):
			}
		}
	}
	return nil
}
