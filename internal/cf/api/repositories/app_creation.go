// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"errors"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	defaultMemoryMB = 1024
	defaultDiskMB   = 1024
)

// CreateAppMessage is an app to be made.
type CreateAppMessage struct {
	Name, Space string
	Lifecycle   korifiv1alpha1.LifecycleType
	Environment map[string]string
}

// CreateApp makes a stopped app, its environment and its web process, as the caller.
func (s *Store) CreateApp(ctx context.Context, caller *authorization.Caller, n CreateAppMessage) (*korifiv1alpha1.CFApp, error) {
	if err := s.checkNameIsFree(n.Space, n.Name); err != nil {
		return nil, err
	}
	guid := uuid.NewString()
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: n.Space, Name: guid, Labels: map[string]string{
		korifiv1alpha1.GUIDLabel: guid, korifiv1alpha1.SpaceGUIDLabel: n.Space, korifiv1alpha1.DisplayNameLabel: hashName(n.Name),
	}}}
	app.Spec = korifiv1alpha1.CFAppSpec{
		DisplayName: n.Name, DesiredState: korifiv1alpha1.StoppedState, Lifecycle: korifiv1alpha1.Lifecycle{Type: n.Lifecycle}, EnvSecretName: guid + "-env",
	}
	if err := caller.Client.Create(ctx, app); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	err := s.claimName(ctx, caller, app)
	if err == nil {
		err = caller.Client.Create(ctx, &corev1.Secret{ObjectMeta: ownedByApp(app, app.Spec.EnvSecretName), StringData: n.Environment})
	}
	if err == nil {
		_, err = s.CreateProcess(ctx, caller, app, korifiv1alpha1.WebProcess)
	}
	if err != nil {
		// An app that is half made is in the way of the next try.
		return nil, errors.Join(apierrors.FromError(err, AppResourceType), client.IgnoreNotFound(caller.Client.Delete(ctx, app)))
	}
	s.WaitForCache(ctx, app)
	return app, nil
}

// CreateProcess makes a process unless the app's controller was faster.
func (s *Store) CreateProcess(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, kind string) (*korifiv1alpha1.CFProcess, error) {
	p := &korifiv1alpha1.CFProcess{ObjectMeta: ownedByApp(app, revision.ProcessName(app.Name, kind))}
	p.Labels[korifiv1alpha1.ProcessGUIDLabel], p.Labels[korifiv1alpha1.ProcessTypeLabel] = p.Name, kind
	p.Spec = korifiv1alpha1.CFProcessSpec{
		AppRef: korifiv1alpha1.Reference{Name: app.Name}, ProcessType: kind, MemoryMB: defaultMemoryMB, DiskQuotaMB: defaultDiskMB,
	}
	err := caller.Client.Create(ctx, p)
	if client.IgnoreAlreadyExists(err) != nil {
		return nil, apierrors.FromError(err, ProcessResourceType)
	}
	if err != nil {
		if err := caller.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return nil, apierrors.FromError(err, ProcessResourceType)
		}
	}
	s.WaitForCache(ctx, p)
	return p, nil
}

// CreatePackage names an image that an app may run.
func (s *Store) CreatePackage(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, image string) (*korifiv1alpha1.CFPackage, error) {
	p := &korifiv1alpha1.CFPackage{ObjectMeta: ownedByApp(app, uuid.NewString()), Spec: korifiv1alpha1.CFPackageSpec{
		Type: korifiv1alpha1.DockerPackage, AppRef: korifiv1alpha1.Reference{Name: app.Name},
		Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: image}},
	}}
	if err := caller.Client.Create(ctx, p); err != nil {
		return nil, apierrors.FromError(err, PackageResourceType)
	}
	s.WaitForCache(ctx, p)
	return p, nil
}

// CreateBuild asks for a droplet from a package; who makes it is a controller.
func (s *Store) CreateBuild(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFPackage) (*korifiv1alpha1.CFBuild, error) {
	b := &korifiv1alpha1.CFBuild{ObjectMeta: ownedByApp(app, uuid.NewString()), Spec: korifiv1alpha1.CFBuildSpec{
		PackageRef: korifiv1alpha1.Reference{Name: p.Name}, AppRef: p.Spec.AppRef, StagingMemoryMB: defaultMemoryMB, StagingDiskMB: defaultDiskMB,
		Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
	}}
	b.Labels[korifiv1alpha1.PackageGUIDLabel] = p.Name
	if err := caller.Client.Create(ctx, b); err != nil {
		return nil, apierrors.FromError(err, BuildResourceType)
	}
	s.WaitForCache(ctx, b)
	return b, nil
}

// ownedByApp is the metadata of what goes with an app.
func ownedByApp(app *korifiv1alpha1.CFApp, name string) metav1.ObjectMeta {
	kind := korifiv1alpha1.CFAppKind()
	return metav1.ObjectMeta{
		Namespace: app.Namespace, Name: name,
		Labels: map[string]string{
			korifiv1alpha1.GUIDLabel: name, korifiv1alpha1.AppGUIDLabel: app.Name, korifiv1alpha1.SpaceGUIDLabel: app.Namespace,
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: app.Name, UID: app.UID}},
	}
}
