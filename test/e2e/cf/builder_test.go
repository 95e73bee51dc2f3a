// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

const (
	builderToken = "only-the-api-knows"
	builtImage   = "registry.example.com/built:1"
	// badCode is refused; hopelessCode is accepted but cannot be built.
	badCode, hopelessCode = "bad", "hopeless"
)

// codeBuilder is a builder with only the permissions of its role: it stores the code that it gets from the API, sets
// the image in the package, and sets the droplets of builds.
type codeBuilder struct{ client client.Client }

// startCodeBuilder starts a builder and returns the address to which code is uploaded.
func (w *env) startCodeBuilder(t *testing.T, space string) string {
	t.Helper()
	account := "builder-of-" + space
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "builder"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-cf-builder"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: account}},
	})
	cfg := rest.AnonymousClientConfig(w.Config)
	cfg.BearerToken = w.createToken(t, account)
	as, err := client.New(cfg, client.Options{Scheme: w.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	b := &codeBuilder{client: as}
	testenv.RunInBackground(t, "the builder", func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) { b.buildAll(ctx, space) }, 50*time.Millisecond)
		return nil
	})
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return server.URL + "/code"
}

// ServeHTTP receives the code of a package.
func (b *codeBuilder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if r.Method != http.MethodPut || len(parts) != 4 || parts[1] != "code" || r.Header.Get("Authorization") != "Bearer "+builderToken {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	file, _, err := r.FormFile("bits")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	code, err := io.ReadAll(file)
	if err != nil || string(code) == badCode {
		http.Error(w, "expected a zip file", http.StatusUnprocessableEntity)
		return
	}
	pkg := &korifiv1alpha1.CFPackage{ObjectMeta: metav1.ObjectMeta{Namespace: parts[2], Name: parts[3]}}
	patch := `{"spec":{"source":{"registry":{"image":"registry.example.com/code:` + string(code) + `"}}}}`
	if err := b.client.Patch(r.Context(), pkg, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (b *codeBuilder) buildAll(ctx context.Context, space string) {
	var builds korifiv1alpha1.CFBuildList
	if b.client.List(ctx, &builds, client.InNamespace(space)) != nil {
		return
	}
	for i := range builds.Items {
		build, pkg := &builds.Items[i], &korifiv1alpha1.CFPackage{}
		isMine := build.Status.Droplet == nil && build.Status.State != korifiv1alpha1.FailedBuild && build.Spec.Lifecycle.Type == korifiv1alpha1.BuildpackLifecycle
		if !isMine || b.client.Get(ctx, client.ObjectKey{Namespace: space, Name: build.Spec.PackageRef.Name}, pkg) != nil {
			continue
		}
		patch := fmt.Sprintf(`{"status":{"droplet":{"registry":{"image":%q},"stack":"full","processTypes":[{"type":"web","command":"serve with %s"}],"ports":[3000]}}}`,
			builtImage, strings.Join(build.Spec.Lifecycle.Data.Buildpacks, " "))
		if strings.HasSuffix(pkg.Spec.Source.Registry.Image, hopelessCode) {
			patch = `{"status":{"state":"FAILED","conditions":[{"type":"Succeeded","status":"False","reason":"NoBuildpack","message":"no buildpack wants it","lastTransitionTime":"2026-07-01T12:00:00Z"}]}}`
		}
		_ = b.client.Status().Patch(ctx, build, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

// upload sends code as the cf client does.
func (c caller) upload(t *testing.T, want int, pkg, code string) string {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("bits", "application.zip")
	testenv.ExpectNoError(t, err)
	_, err = io.WriteString(part, code)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, form.Close())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/v3/packages/"+pkg+"/upload", &body)
	testenv.ExpectNoError(t, err)
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("Authorization", c.authorization)
	answer, err := c.http.Do(request)
	testenv.ExpectNoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	said, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		t.Fatalf("upload %q: found %d %s (%v), want %d", code, answer.StatusCode, said, err, want)
	}
	return string(said)
}

// TestBuilderOfOthersBuildsCode pushes code as the cf client does. The conversation push-source covers a push
// without a builder, which is refused and leaves no app.
func TestBuilderOfOthersBuildsCode(t *testing.T) {
	t.Parallel()
	base := shared.Get(t)
	space := base.createSpace(t)
	w, tokenFile := *base, filepath.Join(t.TempDir(), "token")
	testenv.ExpectNoError(t, os.WriteFile(tokenFile, []byte(builderToken+"\n"), 0o600))
	w.apiMetrics = testenv.FreeAddress(t)
	w.startAPI(t, testenv.TorporPath(t), "--builder-url", w.startCodeBuilder(t, space), "--builder-token-file", tokenFile)
	alice, bob := w.newCaller(t, "alice"), w.newCaller(t, "bob")
	field := func(body, path string) string { return conversation.JSONField(t, body, path) }

	alice.expectStatus(t, http.StatusAccepted, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", `{"applications":[{"name":"coded","buildpacks":["go"]}]}`)
	app := field(alice.expectStatus(t, http.StatusOK, "GET", "/v3/apps?names=coded&space_guids="+space, ""), "resources.0.guid")
	newPackage := func() string {
		body := alice.expectStatus(t, http.StatusCreated, "POST", "/v3/packages", `{"type":"bits","relationships":{"app":{"data":{"guid":"`+app+`"}}}}`)
		if state := field(body, "state"); state != "AWAITING_UPLOAD" {
			t.Errorf("expected a package that awaits its code, found %s", state)
		}
		return field(body, "guid")
	}
	pkg := newPackage()
	bob.upload(t, http.StatusForbidden, pkg, "1")
	w.newCaller(t, "mallory").upload(t, http.StatusNotFound, pkg, "1")
	if said := alice.upload(t, http.StatusUnprocessableEntity, pkg, badCode); !strings.Contains(said, "the builder refused the code: expected a zip file") {
		t.Errorf("expected the message of the builder, found %s", said)
	}
	if state := field(alice.upload(t, http.StatusOK, pkg, "1"), "state"); state != "READY" {
		t.Errorf("expected a package that is ready, found %s", state)
	}
	alice.upload(t, http.StatusUnprocessableEntity, pkg, "2")

	build := field(alice.expectStatus(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+pkg+`"}}`), "guid")
	staged := alice.expectStatus(t, http.StatusOK, "GET", "/v3/builds/"+build, "")
	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/relationships/current_droplet", `{"data":{"guid":"`+field(staged, "droplet.guid")+`"}}`)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
	alice.waitUntilRunning(t, app, 1)
	var pods corev1.PodList
	testenv.ExpectNoError(t, w.Client.List(t.Context(), &pods, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}))
	for i := range pods.Items {
		c := &pods.Items[i].Spec.Containers[0]
		if command := strings.Join(c.Command, " "); c.Image != builtImage || c.Ports[0].ContainerPort != 3000 || !strings.HasSuffix(command, "serve with go") {
			t.Errorf("expected the built image, found %s with %s at %v", c.Image, command, c.Ports)
		}
	}

	manifest := alice.expectStatus(t, http.StatusOK, "GET", "/v3/apps/"+app+"/manifest", "")
	alice.expectStatus(t, http.StatusAccepted, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest)

	pkg = newPackage()
	alice.upload(t, http.StatusOK, pkg, hopelessCode)
	build = field(alice.expectStatus(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+pkg+`"}}`), "guid")
	failed := alice.expectStatus(t, http.StatusOK, "GET", "/v3/builds/"+build, "")
	if field(failed, "state") != "FAILED" || field(failed, "error") != "BuildFail - no buildpack wants it" {
		t.Errorf("expected why the build has failed, found %s", failed)
	}
}
