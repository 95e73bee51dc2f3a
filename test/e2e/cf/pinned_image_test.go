// SPDX-License-Identifier: Apache-2.0

package cf

import (
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

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// After a push, the droplet contains the digest of the image that runs, in addition to the tag. The package and the
// manifest keep the user's image name, so that a push of the same manifest uses the tag again. A missing tag fails
// the push with a message.
func TestPushedImageIsPinned(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	space, c := w.createSpace(t), w.newCaller(t, "alice")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	typed := server.Listener.Addr().String() + "/shop:1"
	tag, err := name.NewTag(typed)
	testenv.ExpectNoError(t, err)
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{ExposedPorts: map[string]struct{}{"3000/tcp": {}}}})
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, remote.Write(tag, image, remote.WithContext(t.Context())))
	digest, err := image.Digest()
	testenv.ExpectNoError(t, err)
	field := func(body, path string) string { return conversation.JSONField(t, body, path) }
	app := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/apps", `{"name":"pinned","lifecycle":{"type":"docker"},"relationships":{"space":{"data":{"guid":"`+space+`"}}}}`), "guid")
	push := func(image string) (pkg, build string) {
		pkg = field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/packages", `{"type":"docker","data":{"image":"`+image+`"},"relationships":{"app":{"data":{"guid":"`+app+`"}}}}`), "guid")
		build = field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+pkg+`"}}`), "guid")
		return pkg, c.expectStatus(t, http.StatusOK, "GET", "/v3/builds/"+build, "")
	}
	pkg, build := push(typed)
	droplet := field(build, "droplet.guid")
	c.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	if found := field(c.expectStatus(t, http.StatusOK, "GET", "/v3/apps/"+app+"/droplets/current", ""), "image"); found != typed+"@"+digest.String() {
		t.Errorf("expected the digest next to the tag, found %s", found)
	}
	if found := field(c.expectStatus(t, http.StatusOK, "GET", "/v3/packages/"+pkg, ""), "data.image"); found != typed {
		t.Errorf("expected the user's image name, found %s", found)
	}
	if manifest := c.expectStatus(t, http.StatusOK, "GET", "/v3/apps/"+app+"/manifest", ""); !strings.Contains(manifest, "image: "+typed+"\n") {
		t.Errorf("expected the image as it was typed, found %s", manifest)
	}
	missing := server.Listener.Addr().String() + "/shop:2"
	if _, build := push(missing); field(build, "state") != "FAILED" || !strings.Contains(field(build, "error"), "expected the image "+missing) {
		t.Errorf("expected a build that failed and why, found %s", build)
	}
}
