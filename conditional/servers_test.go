// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// idleServers holds servers for later tests, because starting a server takes longer than most tests.
var idleServers serverPool

type serverPool struct {
	mu   sync.Mutex
	idle []idleServer
}

type idleServer struct {
	env *envtest.Environment
	cfg *rest.Config
}

func (p *serverPool) take(isShared bool) (idleServer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isShared || len(p.idle) == 0 {
		return idleServer{}, false
	}
	last := len(p.idle) - 1
	s := p.idle[last]
	p.idle = p.idle[:last]
	return s, true
}

// giveBack returns a server to the pool after deleting the objects of the test. If that fails, it stops the server.
func (p *serverPool) giveBack(s *apiServer) error {
	if err := s.wipe(); err != nil {
		s.t.Logf("a server is not used again: %v", err)
		return s.env.Stop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, idleServer{s.env, s.cfg})
	return nil
}

func (p *serverPool) stopAll() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.env.Stop())
	}
	return errors.Join(errs...)
}

// wipe deletes the objects of a test.
func (s *apiServer) wipe() error {
	c, err := client.New(s.cfg, client.Options{Scheme: s.scheme})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		left := 0
		var crds apiextensionsv1.CustomResourceDefinitionList
		if err := c.List(ctx, &crds); err != nil {
			return false, err
		}
		if len(crds.Items) > 50 {
			return false, errors.New("to delete so many CRDs takes longer than to start another server")
		}
		for _, crd := range crds.Items {
			left++
			stored := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[stored].Name, Kind: crd.Spec.Names.Kind + "List"})
			if c.List(ctx, objects) == nil { // A kind that is no longer served has no objects.
				for _, obj := range objects.Items {
					_ = remove(ctx, c, &obj)
				}
			}
			if err := remove(ctx, c, &crd); err != nil {
				return false, err
			}
		}
		for _, list := range []client.ObjectList{
			&appsv1.DeploymentList{}, &coordinationv1.LeaseList{}, &corev1.ConfigMapList{}, &corev1.NamespaceList{}, &corev1.NodeList{}, &corev1.PodList{},
			&corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.RoleList{},
		} {
			if err := c.List(ctx, list); err != nil {
				return false, err
			}
			err := meta.EachListItem(list, func(item runtime.Object) error {
				obj := item.(client.Object)
				if isOfTheServer(obj) {
					return nil
				}
				left++
				return remove(ctx, c, obj)
			})
			if err != nil {
				return false, err
			}
		}
		return left == 0, nil
	})
}

// isOfTheServer reports whether an object exists in every new server.
func isOfTheServer(obj client.Object) bool {
	_, isBootstrapped := obj.GetLabels()["kubernetes.io/bootstrapping"]
	return isBootstrapped || obj.GetName() == "default" || strings.HasPrefix(obj.GetName(), "kube-") || strings.HasPrefix(obj.GetName(), "system:") ||
		strings.HasPrefix(obj.GetNamespace(), "kube-")
}

// remove deletes an object and removes its finalizers. The finalizer of a CRD is kept, because the server handles it.
func remove(ctx context.Context, c client.Client, obj client.Object) error {
	if namespace, is := obj.(*corev1.Namespace); is && namespace.DeletionTimestamp != nil {
		namespace.Spec.Finalizers = nil
		return client.IgnoreNotFound(c.SubResource("finalize").Update(ctx, namespace))
	}
	if _, is := obj.(*apiextensionsv1.CustomResourceDefinition); !is && len(obj.GetFinalizers()) > 0 {
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := c.Patch(ctx, obj, none); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return client.IgnoreNotFound(c.Delete(ctx, obj, client.GracePeriodSeconds(0)))
}
