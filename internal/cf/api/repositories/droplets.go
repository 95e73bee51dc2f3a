// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// registryHashLength is the length of the hash of a registry in the name of an image pull Secret.
const registryHashLength = 10

// GetBuild returns a build that is visible to the caller. resourceType is the type in errors: build, or droplet,
// because a droplet is a staged build.
func (s *Store) GetBuild(ctx context.Context, caller *authorization.Caller, guid, resourceType string) (*korifiv1alpha1.CFBuild, error) {
	return s.GetBuildInSpace(ctx, caller, everySpace, guid, resourceType)
}

// GetBuildInSpace returns the build to which an object in the same space refers. Other spaces may have a build with the
// same GUID.
func (s *Store) GetBuildInSpace(ctx context.Context, caller *authorization.Caller, space, guid, resourceType string) (*korifiv1alpha1.CFBuild, error) {
	found, err := find[*korifiv1alpha1.CFBuild](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFBuildList{}, noun: "build", resource: buildsResource, resourceType: resourceType, space: space,
	})
	if err != nil {
		return nil, err
	}
	return found, s.requireOwner(ctx, caller, found, resourceType)
}

// ListBuildsOfApp returns the builds of an app, oldest first.
func (s *Store) ListBuildsOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFBuild, error) {
	return listOfApp[*korifiv1alpha1.CFBuild](ctx, s, app, "list builds", &korifiv1alpha1.CFBuildList{})
}

// GetPackage returns a package that is visible to the caller.
func (s *Store) GetPackage(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFPackage, error) {
	return s.GetPackageInSpace(ctx, caller, everySpace, guid)
}

// GetPackageInSpace returns the package to which an object in the same space refers. Other spaces may have a package
// with the same GUID.
func (s *Store) GetPackageInSpace(ctx context.Context, caller *authorization.Caller, space, guid string) (*korifiv1alpha1.CFPackage, error) {
	found, err := find[*korifiv1alpha1.CFPackage](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFPackageList{}, noun: "package", resource: PackagesResource, resourceType: PackageResourceType, space: space,
	})
	if err != nil {
		return nil, err
	}
	return found, s.requireOwner(ctx, caller, found, PackageResourceType)
}

// requireOwner returns a not-found error for an object whose app was deleted, because the garbage collector deletes the
// object only some time later. Objects without an owner are not affected.
func (s *Store) requireOwner(ctx context.Context, caller *authorization.Caller, object client.Object, resourceType string) error {
	kind := korifiv1alpha1.CFAppKind().Kind
	at := slices.IndexFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == kind })
	if at < 0 {
		return nil
	}
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetOwnerReferences()[at].Name}
	if _, exists, err := s.apps.GetByKey(key.String()); exists && err == nil {
		return nil
	}
	// The cache may not contain a new app yet, because apps are watched separately.
	if err := caller.Client.Get(ctx, key, &korifiv1alpha1.CFApp{}); err != nil {
		return apierrors.ForbiddenAsNotFound(err, resourceType)
	}
	return nil
}

// ListPackagesOfApp returns the packages of an app, oldest first.
func (s *Store) ListPackagesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFPackage, error) {
	return listOfApp[*korifiv1alpha1.CFPackage](ctx, s, app, "list packages", &korifiv1alpha1.CFPackageList{})
}

// PackageImage is an image with registry credentials. If Username is empty, the registry needs no credentials. If Name
// is empty, code is uploaded later.
type PackageImage struct {
	Name, Username, Password string
	// Metadata holds the labels and annotations of the package.
	Metadata *payloads.Metadata
}

// CreatePackage creates a package with an image, or a package to which code is uploaded later.
func (s *Store) CreatePackage(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, image PackageImage) (*korifiv1alpha1.CFPackage, error) {
	registry := korifiv1alpha1.Registry{Image: image.Name}
	if image.Username != "" {
		secret, err := saveRegistryLogin(ctx, caller, app, image)
		if err != nil {
			return nil, err
		}
		registry.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
	}
	kind := korifiv1alpha1.DockerPackage
	if image.Name == "" {
		kind = korifiv1alpha1.BitsPackage
	}
	made := &korifiv1alpha1.CFPackage{ObjectMeta: ownedByApp(app, newOrderedGUID()), Spec: korifiv1alpha1.CFPackageSpec{
		Type: kind, AppRef: korifiv1alpha1.Reference{Name: app.Name}, Source: korifiv1alpha1.PackageSource{Registry: registry},
	}}
	setMetadata(made, image.Metadata)
	return create(ctx, s, caller, made)
}

// saveRegistryLogin stores registry credentials in an image pull Secret and returns the Secret's name. An app has one
// Secret per registry, so old droplets are pulled with the latest password.
func saveRegistryLogin(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, image PackageImage) (string, error) {
	named, err := reference.ParseNormalizedNamed(image.Name)
	if err != nil {
		return "", apierrors.NewUnprocessableEntity("expected an image such as registry.example.com/shop:1 in data.image, found " + strconv.Quote(image.Name) + ": " + err.Error())
	}
	registry := reference.Domain(named)
	if registry == "docker.io" {
		registry = "https://index.docker.io/v1/" // This is the key for Docker Hub in client configurations.
	}
	config, err := json.Marshal(jsonObject{"auths": jsonObject{registry: jsonObject{
		"username": image.Username, "password": image.Password, "auth": []byte(image.Username + ":" + image.Password),
	}}})
	if err != nil {
		return "", fmt.Errorf("encode the login at %s: %w", registry, err)
	}
	data := map[string][]byte{corev1.DockerConfigJsonKey: config}
	secret := &corev1.Secret{
		ObjectMeta: ownedByApp(app, app.Name+"-registry-"+hashName(registry)[:registryHashLength]), Type: corev1.SecretTypeDockerConfigJson, Data: data,
	}
	err = caller.Client.Create(ctx, secret)
	if k8serrors.IsAlreadyExists(err) {
		err = patchAsCaller(ctx, caller, secret, jsonObject{"data": data})
	}
	if err != nil {
		return "", apierrors.FromError(err, PackageResourceType)
	}
	return secret.Name, nil
}

// CreateBuild requests a droplet for a package. The build controller or the builder of code creates the droplet.
func (s *Store) CreateBuild(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, from *korifiv1alpha1.CFPackage) (*korifiv1alpha1.CFBuild, error) {
	build := &korifiv1alpha1.CFBuild{ObjectMeta: ownedByApp(app, newOrderedGUID()), Spec: korifiv1alpha1.CFBuildSpec{
		PackageRef: korifiv1alpha1.Reference{Name: from.Name}, AppRef: from.Spec.AppRef, StagingMemoryMB: defaultMemoryMB, StagingDiskMB: defaultDiskMB,
		Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
	}}
	if from.Spec.Type == korifiv1alpha1.BitsPackage {
		build.Spec.Lifecycle = app.Spec.Lifecycle
	}
	build.Labels[korifiv1alpha1.PackageGUIDLabel] = from.Name
	return create(ctx, s, caller, build)
}
