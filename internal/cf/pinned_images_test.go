// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// newImageRegistry returns the address of a registry. The registry requires the password unless the password is empty.
func newImageRegistry(t *testing.T, password string) string {
	t.Helper()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password && r.Method == http.MethodGet {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// pushTestImage pushes an image that exposes a port, and returns the image's digest.
func pushTestImage(t *testing.T, ref string, port int) string {
	t.Helper()
	tag, err := name.NewTag(ref)
	testenv.ExpectNoError(t, err)
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{
		User: "1000", ExposedPorts: map[string]struct{}{fmt.Sprintf("%d/tcp", port): {}},
	}})
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, remote.Write(tag, image, remote.WithContext(t.Context())))
	digest, err := image.Digest()
	testenv.ExpectNoError(t, err)
	return digest.String()
}

// An app runs the image to which its tag pointed at the time of the push, on the port of the image's EXPOSE
// instruction. If the tag has moved and the app is pushed again, a rollback restores the old image.
func TestDropletIsPinnedByDigest(t *testing.T) {
	e := shared.Get(t)
	host := newImageRegistry(t, "")
	ref := host + "/shop:1"
	a := e.createApp(t, appOptions{instances: 1})
	builds := []string{a.name + "-one", a.name + "-two"}
	var images []string
	for i, build := range builds {
		images = append(images, ref+"@"+pushTestImage(t, ref, 3000+i))
		made := e.createBuildOf(t, a.name, build, ref)
		e.waitForBuild(t, made, korifiv1alpha1.StagedBuild, metav1.ConditionTrue, korifiv1alpha1.StagedReason)
		if pinned := meta.FindStatusCondition(made.Status.Conditions, korifiv1alpha1.PinnedCondition); made.Status.Droplet.Registry.Image != images[i] || pinned == nil || pinned.Reason != korifiv1alpha1.ImagePinnedReason {
			t.Fatalf("expected %s, found %+v", images[i], made.Status)
		}
	}
	for i, build := range append(builds, builds[0]) {
		a.patchApp(t, fmt.Sprintf(`{"spec":{"currentDropletRef":{"name":%q}},"metadata":{"annotations":{%q:%q}}}`, build, torporv1alpha1.RestartRequestAnnotation, fmt.Sprint(build, i)))
		a.waitUntilRunning(t)
		want, port := images[i%len(images)], fmt.Sprint(3000+i%len(images))
		for _, p := range a.listPods(t) {
			c := p.Spec.Containers[0]
			found := map[string]string{}
			for _, variable := range c.Env {
				found[variable.Name] = variable.Value
			}
			if c.Image != want || found["PORT"] != port || fmt.Sprint(c.Ports[0].ContainerPort) != port {
				t.Errorf("push %d: expected %s at port %s, found %s at %s %v", i, want, port, c.Image, found["PORT"], c.Ports)
			}
		}
	}
}

// A build uses the registry credentials of its space, which are never shown. A build of a missing image fails
// immediately. If the registry must not be contacted, the app runs the image by its tag.
func TestBuildReportsTheAnswerOfTheRegistry(t *testing.T) {
	e := shared.Get(t)
	const password = "word-that-nobody-may-read"
	host := newImageRegistry(t, password)
	config, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"username": "alice", "password": password}}})
	testenv.ExpectNoError(t, err)
	e.ExpectCreated(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "login"}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	})
	for name, row := range map[string]struct {
		image, secret string
		state         korifiv1alpha1.BuildState
		reason        string
		pinned        string
	}{
		"registry-missing":  {host + "/shop:2", "login", korifiv1alpha1.FailedBuild, korifiv1alpha1.ImageMissingReason, ""},
		"registry-refused":  {host + "/shop:2", "elsewhere", korifiv1alpha1.StagedBuild, korifiv1alpha1.StagedReason, korifiv1alpha1.RegistryRefusedReason},
		"registry-unlisted": {"127.0.0.2:1/shop:1", "login", korifiv1alpha1.StagedBuild, korifiv1alpha1.StagedReason, korifiv1alpha1.RegistryNotAskedReason},
	} {
		reference, succeeded := korifiv1alpha1.Reference{Name: name}, metav1.ConditionTrue
		if row.state == korifiv1alpha1.FailedBuild {
			succeeded = metav1.ConditionFalse
		}
		made := &korifiv1alpha1.CFBuild{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
			Spec:       korifiv1alpha1.CFBuildSpec{PackageRef: reference, AppRef: reference, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}},
		}
		e.ExpectCreated(t, &korifiv1alpha1.CFPackage{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
			Spec: korifiv1alpha1.CFPackageSpec{Type: korifiv1alpha1.DockerPackage, AppRef: reference, Source: korifiv1alpha1.PackageSource{
				Registry: korifiv1alpha1.Registry{Image: row.image, ImagePullSecrets: []corev1.LocalObjectReference{{Name: row.secret}}},
			}},
		}, made)
		e.waitForBuild(t, made, row.state, succeeded, row.reason)
		found := ""
		if pinned := meta.FindStatusCondition(made.Status.Conditions, korifiv1alpha1.PinnedCondition); pinned != nil {
			found = pinned.Reason
		}
		if found != row.pinned {
			t.Errorf("%s: expected it to be pinned %q, found %+v", name, row.pinned, made.Status.Conditions)
		}
		if row.state == korifiv1alpha1.StagedBuild && made.Status.Droplet.Registry.Image != row.image {
			t.Errorf("%s: expected the image by its name, found %+v", name, made.Status.Droplet)
		}
		if text, err := json.Marshal(made); err != nil || strings.Contains(string(text), password) {
			t.Errorf("%s: expected no password in %s, %v", name, text, err)
		}
		// A second reconciliation sends no request to the registry and reports the same failure message.
		was, before := made.Status.DeepCopy(), made.DeepCopy()
		made.Spec.StagingMemoryMB = 1
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), made, client.MergeFrom(before)))
		testenv.Eventually(t, "another pass is over", func() error {
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
				return fmt.Errorf("get: %w", err)
			}
			return testenv.ErrorIf(made.Status.ObservedGeneration != made.Generation, "found %+v", made.Status)
		})
		for _, c := range was.Conditions {
			if found := meta.FindStatusCondition(made.Status.Conditions, c.Type); found == nil || found.Reason != c.Reason || found.Message != c.Message {
				t.Errorf("%s: expected %+v again, found %+v", name, c, found)
			}
		}
	}
	e.log.ExpectWithout(t, password)
}
