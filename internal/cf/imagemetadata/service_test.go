// SPDX-License-Identifier: Apache-2.0

package imagemetadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/build"
)

const (
	// onLoopback allows the registries of these tests, but no other address of the machine.
	onLoopback = "http://127.0.0.1"
	space      = "space"
	password   = "a-password-that-nobody-may-read"
	// generous is the timeout for tests that should finish much earlier.
	generous = time.Minute
)

// newRegistry starts a registry with real images. front, if set, receives each request first.
func newRegistry(t *testing.T, front func(registry http.Handler) http.HandlerFunc) (host string) {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if front != nil {
		handler = front(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func pushImage(t *testing.T, ref string, config v1.Config) string {
	t.Helper()
	tag, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	image := newImage(t, config)
	if err := remote.Write(tag, image, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func newImage(t *testing.T, config v1.Config) v1.Image {
	t.Helper()
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: config, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func exposing(user string, ports ...string) v1.Config {
	exposed := map[string]struct{}{}
	for _, port := range ports {
		exposed[port] = struct{}{}
	}
	return v1.Config{ExposedPorts: exposed, User: user}
}

// asker is a service with the functions that a controller provides.
type asker struct {
	*Service
	answered chan types.NamespacedName
	secrets  map[string]corev1.Secret
}

// newAsker returns a service that has not been started, so a test can set its fields.
func newAsker(t *testing.T, now clock.PassiveClock, list ...string) *asker {
	t.Helper()
	policy, err := ParsePolicy(list)
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{NewService(policy, now, nil), make(chan types.NamespacedName, maxWaiting), map[string]corev1.Secret{}}
	a.Enqueue = func(build types.NamespacedName) { a.answered <- build }
	a.ReadSecret = func(_ context.Context, key types.NamespacedName) (*corev1.Secret, error) {
		secret, isThere := a.secrets[key.String()]
		if !isThere {
			return nil, k8serrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
		}
		return &secret, nil
	}
	return a
}

func (a *asker) start(t *testing.T) *asker {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

// ask repeatedly requests an answer, as the passes of a build do.
func (a *asker) ask(t *testing.T, q Question) build.ImageAnswer {
	t.Helper()
	answer, isKnown := a.RequestAnswer(q)
	for deadline := time.After(generous); !isKnown; answer, isKnown = a.RequestAnswer(q) {
		select {
		case <-a.answered:
		case <-deadline:
			t.Fatalf("expected an answer about %s, found none", q.Registry.Image)
		}
	}
	return answer
}

func about(build, image string, secrets ...string) Question {
	q := Question{Build: types.NamespacedName{Namespace: space, Name: build}, UID: types.UID(build), Registry: korifiv1alpha1.Registry{Image: image}}
	for _, secret := range secrets {
		q.Registry.ImagePullSecrets = append(q.Registry.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	return q
}

func TestImageIsReadAtItsRegistry(t *testing.T) {
	host := newRegistry(t, nil)
	digest := pushImage(t, host+"/shop:1", exposing("1000:1000", "9090/tcp", "3000/tcp", "53/udp", "3000", "0/tcp", "70000/tcp"))
	root := pushImage(t, host+"/root:latest", exposing(""))
	named := pushImage(t, host+"/named:1", exposing("nobody"))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: newImage(t, exposing("1")), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
		mutate.IndexAddendum{Add: newImage(t, exposing("2", "4000/tcp")), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "none"}}})
	tag, err := name.NewTag(host + "/index:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	indexDigest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	const refused = "; nodes refuse to start the image unless an admission webhook sets a user for its Pods"
	a := newAsker(t, clock.RealClock{}, onLoopback).start(t)
	for image, want := range map[string]build.ImageAnswer{
		host + "/shop:1":              {Image: host + "/shop:1@" + digest, Ports: []int32{3000, 9090}},
		host + "/shop@" + digest:      {Image: host + "/shop@" + digest, Ports: []int32{3000, 9090}},
		host + "/shop:old@" + digest:  {Image: host + "/shop:old@" + digest, Ports: []int32{3000, 9090}},
		host + "/root":                {Image: host + "/root:latest@" + root, Message: `expected an image with a numeric user other than 0, found ""` + refused},
		host + "/named:1":             {Image: host + "/named:1@" + named, Message: `expected an image with a numeric user other than 0, found "nobody"` + refused},
		host + "/index:1":             {Image: host + "/index:1@" + indexDigest.String(), Ports: []int32{4000}},
		host + "/shop:2":              {Reason: korifiv1alpha1.ImageMissingReason, Message: "expected the image " + host + "/shop:2, found no such image in its registry; push the image there first, or use an existing image"},
		host + "/nothing":             {Reason: korifiv1alpha1.ImageMissingReason, Message: "expected the image " + host + "/nothing:latest, found no such image in its registry; push the image there first, or use an existing image"},
		"registry.example/shop:1":     {Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "--image-registries does not list registry.example"},
		"shop:1":                      {Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "--image-registries does not list docker.io"},
		"Not an image":                {Reason: korifiv1alpha1.ImageUnreadableReason, Message: "expected an image such as registry.example.com/shop:1, found another name; push an image with a valid name"},
		"127.0.0.2:1/shop:1":          {Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "--image-registries does not list 127.0.0.2:1"},
		"169.254.169.254/latest/meta": {Reason: korifiv1alpha1.RegistryNotAskedReason, Message: "--image-registries does not list 169.254.169.254"},
	} {
		if diff := cmp.Diff(want, a.ask(t, about(image, image))); diff != "" {
			t.Errorf("%s: expected another answer (-want +got):\n%s", image, diff)
		}
	}
}

// If the registry refuses a request, fails or redirects it, the image keeps its tag. The registry's own text is never
// shown.
func TestFailedRegistryLookupKeepsTheTag(t *testing.T) {
	trap, trapped := newTrap(t)
	const internal = "text of an internal server"
	fail := func(status int, body string) func(http.Handler) http.HandlerFunc {
		return func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }
		}
	}
	// The client's first request finds the token service and is not redirected.
	redirect := func(to string) func(http.Handler) http.HandlerFunc {
		return func(registry http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					registry.ServeHTTP(w, r)
					return
				}
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			}
		}
	}
	tokenFrom := func(realm string) func(http.Handler) http.HandlerFunc {
		return func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}
	}
	for what, row := range map[string]struct {
		front func(http.Handler) http.HandlerFunc
		want  string
	}{
		"a registry that refuses all callers: RegistryRefused":          {fail(http.StatusUnauthorized, internal), korifiv1alpha1.RegistryRefusedReason},
		"a registry that forbids the image: RegistryRefused":            {fail(http.StatusForbidden, internal), korifiv1alpha1.RegistryRefusedReason},
		"a registry that limits requests: RegistryRefused":              {fail(http.StatusTooManyRequests, internal), korifiv1alpha1.RegistryRefusedReason},
		"a registry that returns 502: RegistryRefused":                  {fail(http.StatusBadGateway, internal), korifiv1alpha1.RegistryRefusedReason},
		"a server that is no registry and returns 404: RegistryRefused": {fail(http.StatusNotFound, internal), korifiv1alpha1.RegistryRefusedReason},
		"a server that is no registry and returns 200: ImageUnreadable": {fail(http.StatusOK, internal), korifiv1alpha1.ImageUnreadableReason},
		"a redirect to another address: ImageUnreadable":                {redirect("https://" + trap + "/"), korifiv1alpha1.ImageUnreadableReason},
		"a redirect to a metadata service: ImageUnreadable":             {redirect("http://169.254.169.254/latest/meta-data/"), korifiv1alpha1.ImageUnreadableReason},
		"a redirect to another address by its name: RegistryNotAllowed": {redirect("http://localhost:" + portOf(t, trap) + "/"), korifiv1alpha1.RegistryNotAllowedReason},
		"an endless redirect: ImageUnreadable":                          {redirect("/v2/shop/manifests/1"), korifiv1alpha1.ImageUnreadableReason},
		"a token service at another address: ImageUnreadable":           {tokenFrom("https://" + trap + "/token"), korifiv1alpha1.ImageUnreadableReason},
		"a token service at a metadata address: ImageUnreadable":        {tokenFrom("http://169.254.169.254/token"), korifiv1alpha1.ImageUnreadableReason},
		"a token service over http: RegistryNotAllowed":                 {tokenFrom("http://registry.example/token"), korifiv1alpha1.RegistryNotAllowedReason},
	} {
		t.Run(what, func(t *testing.T) {
			host := newRegistry(t, row.front)
			a := newAsker(t, clock.RealClock{}, onLoopback).start(t)
			answer := a.ask(t, about("build", host+"/shop:1"))
			if answer.Image != "" || answer.Reason != row.want || !strings.Contains(answer.Message, "expected ") || strings.Contains(answer.Message, internal) {
				t.Errorf("expected %s with Torpor's text, found %+v", row.want, answer)
			}
		})
	}
	if n := trapped.Load(); n != 0 {
		t.Errorf("expected no connection to an unlisted address, found %d", n)
	}
}

// newTrap listens on an unlisted address of the machine, and counts connections.
func newTrap(t *testing.T) (address string, connections *atomic.Int64) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = &atomic.Int64{}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = connection.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	return listener.Addr().String(), connections
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A small manifest that would be large once decoded is not decoded.
func TestManifestOfManyObjectsIsCutOff(t *testing.T) {
	host := newRegistry(t, func(registry http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				registry.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = io.WriteString(w, `{"layers":[{}`+strings.Repeat(",{}", maxAnswerObjects)+`]}`)
		}
	})
	a := newAsker(t, clock.RealClock{}, onLoopback).start(t)
	if answer := a.ask(t, about("build", host+"/shop:1")); answer.Image != "" || answer.Reason != korifiv1alpha1.ImageUnreadableReason || !strings.Contains(answer.Message, "10000 objects") {
		t.Errorf("expected a response with too many objects, found %+v", answer)
	}
}

// An endless manifest is read only up to the limit, and the manager's memory usage stays low.
func TestManifestWithoutEndIsCutOff(t *testing.T) {
	const gigabyte = 1 << 30
	var sent atomic.Int64
	host := newRegistry(t, func(registry http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				registry.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			for chunk := make([]byte, 1<<16); sent.Load() < gigabyte; {
				n, err := w.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	})
	a := newAsker(t, clock.RealClock{}, onLoopback).start(t)
	if answer := a.ask(t, about("build", host+"/shop:1")); answer.Reason != korifiv1alpha1.ImageUnreadableReason || !strings.Contains(answer.Message, "at most 524288 bytes") {
		t.Errorf("expected a response that is too long, found %+v", answer)
	}
	// Socket buffers hold some data beyond the limit.
	if n := sent.Load(); n > gigabyte/4 {
		t.Errorf("expected the connection to end soon after %d bytes, found %d sent", maxAnswerBytes, n)
	}
}

// A registry that does not respond delays only one build. For some time, further builds immediately get an answer
// without a request, and other registries are not affected.
func TestSilentRegistryIsNotQueriedAgainAtOnce(t *testing.T) {
	release := make(chan struct{})
	var questions atomic.Int64
	silent := newRegistry(t, func(http.Handler) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			questions.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	})
	defer close(release)
	other := newRegistry(t, nil)
	digest := pushImage(t, other+"/shop:1", exposing("1"))
	now := clocktesting.NewFakePassiveClock(time.Now())
	a := newAsker(t, now, onLoopback)
	a.timeout = 300 * time.Millisecond
	a.start(t)
	if answer := a.ask(t, about("first", silent+"/shop:1")); answer.Reason != korifiv1alpha1.RegistrySilentReason || answer.Image != "" {
		t.Fatalf("expected no response, found %+v", answer)
	}
	asked := questions.Load()
	if answer, isKnown := a.RequestAnswer(about("second", silent+"/shop:2")); !isKnown || answer.Reason != korifiv1alpha1.RegistrySilentReason {
		t.Errorf("expected an answer at once, found %t %+v", isKnown, answer)
	}
	if questions.Load() != asked {
		t.Error("expected no second request to a registry that does not answer, found one")
	}
	a.timeout = generous
	if answer := a.ask(t, about("third", other+"/shop:1")); answer.Image != other+"/shop:1@"+digest {
		t.Errorf("expected the other registry to answer, found %+v", answer)
	}
	now.SetTime(now.Now().Add(silentFor + time.Second))
	if _, isKnown := a.RequestAnswer(about("fourth", silent+"/shop:3")); isKnown {
		t.Error("expected a new request to the registry after a while, found an answer at once")
	}
}

// No registry and no space can use more than its share of the concurrent requests.
func TestSlowRegistryDoesNotDelayOthers(t *testing.T) {
	arrived, release := make(chan string, maxWaiting), make(chan struct{})
	slow := newRegistry(t, func(registry http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				arrived <- r.URL.Path
				<-release
			}
			registry.ServeHTTP(w, r)
		}
	})
	releaseAll := sync.OnceFunc(func() { close(release) })
	defer releaseAll()
	quick := newRegistry(t, nil)
	digest := pushImage(t, quick+"/shop:1", exposing("1"))
	a := newAsker(t, clock.RealClock{}, onLoopback)
	a.timeout = generous
	a.start(t)
	const builds = 3 * maxOfRegistry
	for i := range builds {
		q := about(fmt.Sprint("slow-", i), fmt.Sprintf("%s/shop-%d:1", slow, i))
		q.Build.Namespace = fmt.Sprint("space-", i)
		if _, isKnown := a.RequestAnswer(q); isKnown {
			t.Fatal("expected a request to the registry, found an answer")
		}
	}
	for range maxOfRegistry {
		<-arrived
	}
	if answer := a.ask(t, about("quick", quick+"/shop:1")); answer.Image != quick+"/shop:1@"+digest {
		t.Errorf("expected a response from the other registry, found %+v", answer)
	}
	select {
	case path := <-arrived:
		t.Errorf("expected %d requests at a time, found another one, %s", maxOfRegistry, path)
	default:
	}
	releaseAll()
	for range builds {
		select {
		case <-a.answered:
		case <-time.After(generous):
			t.Fatal("expected an answer for each build, found a build without one")
		}
	}
}

func TestRegistryIsQueriedOncePerBuild(t *testing.T) {
	var questions atomic.Int64
	host := newRegistry(t, func(registry http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/") {
				questions.Add(1)
			}
			registry.ServeHTTP(w, r)
		}
	})
	first := pushImage(t, host+"/shop:1", exposing("1"))
	a := newAsker(t, clock.RealClock{}, onLoopback).start(t)
	q := about("build", host+"/shop:1")
	a.ask(t, q)
	second := pushImage(t, host+"/shop:1", exposing("2"))
	if answer := a.ask(t, q); answer.Image != host+"/shop:1@"+first || questions.Load() != 1 {
		t.Errorf("expected the first answer again, found %+v after %d requests", answer, questions.Load())
	}
	q.UID = "another build with this name"
	if answer := a.ask(t, q); answer.Image != host+"/shop:1@"+second {
		t.Errorf("expected a request for another build, found %+v", answer)
	}
	a.ForgetBuild(q.Build)
	if left := a.asked.ListKeys(); len(left) != 0 {
		t.Errorf("expected no data of a completed build, found %d", len(left))
	}
}

// The credentials in a space's pull Secrets are sent only to their own registry and its token service.
func TestPullSecretsAreUsedForTheirRegistryOnly(t *testing.T) {
	isLoggedIn := func(r *http.Request) bool {
		user, given, _ := r.BasicAuth()
		return user == "alice" && given == password
	}
	private := newRegistry(t, func(registry http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !isLoggedIn(r) && r.Method == http.MethodGet {
				w.Header().Set("WWW-Authenticate", `Basic realm="shop"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			registry.ServeHTTP(w, r)
		}
	})
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := "nobody"
		if isLoggedIn(r) {
			token = "alice"
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": token})
	}))
	defer tokens.Close()
	byToken := newRegistry(t, func(registry http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer alice" && r.Method == http.MethodGet {
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://localhost:`+portOf(t, tokens.Listener.Addr().String())+`/token",service="shop"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			registry.ServeHTTP(w, r)
		}
	})
	var leaked atomic.Int64
	curious := newRegistry(t, func(http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				leaked.Add(1)
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="anything"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	a := newAsker(t, clock.RealClock{}, onLoopback, "http://localhost")
	for name, hosts := range map[string][]string{"logins": {private, byToken}, "other": {curious + "0"}} {
		a.secrets[space+"/"+name] = loginSecret(t, hosts...)
	}
	a.secrets["another-space/theirs"] = loginSecret(t, private)
	a.secrets[space+"/broken"] = corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":"` + password)}}
	a.start(t)
	for what, row := range map[string]struct {
		image   string
		secrets []string
		want    string
	}{
		"an anonymous request to a private registry is refused": {private + "/shop:1", nil, korifiv1alpha1.RegistryRefusedReason},
		"a login at a private registry is accepted":             {private + "/shop:1", []string{"missing", "logins"}, korifiv1alpha1.ImageMissingReason},
		"a login is accepted at a token service":                {byToken + "/shop:1", []string{"logins"}, korifiv1alpha1.ImageMissingReason},
		"an anonymous request to a token service is refused":    {byToken + "/shop:1", []string{"other"}, korifiv1alpha1.RegistryRefusedReason},
		"a Secret in another space is not read":                 {private + "/shop:1", []string{"theirs"}, korifiv1alpha1.RegistryRefusedReason},
		"a login for another registry is not sent":              {curious + "/shop:1", []string{"logins", "other"}, korifiv1alpha1.RegistryRefusedReason},
		"the content of an unreadable Secret is not shown":      {private + "/shop:1", []string{"broken"}, korifiv1alpha1.PullSecretUnreadableReason},
	} {
		answer := a.ask(t, about(what, row.image, row.secrets...))
		if answer.Reason != row.want || strings.Contains(answer.Message, password) {
			t.Errorf("%s: expected %s without the password, found %+v", what, row.want, answer)
		}
	}
	if n := leaked.Load(); n != 0 {
		t.Errorf("expected no login to be sent to another registry, found %d", n)
	}
}

func loginSecret(t *testing.T, hosts ...string) corev1.Secret {
	t.Helper()
	auths := map[string]any{}
	for _, host := range hosts {
		auths[host] = map[string]any{"username": "alice", "password": password, "auth": []byte("alice:" + password)}
	}
	config, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	return corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: config}}
}

func TestPolicySelectsRegistries(t *testing.T) {
	for _, bad := range [][]string{{"none", "*"}, {"https://registry.example"}, {"registry.example:5000"}, {""}, {"http://"}} {
		if _, err := ParsePolicy(bad); err == nil {
			t.Errorf("%v: expected an error", bad)
		}
	}
	for _, nobody := range [][]string{nil, {"none"}} {
		if p, err := ParsePolicy(nobody); err != nil || !p.isEmpty() {
			t.Errorf("%v: expected an empty policy, found %+v, %v", nobody, p, err)
		}
	}
	trap, trapped := newTrap(t)
	port := portOf(t, trap)
	for what, row := range map[string]struct {
		list []string
		url  string
		want error
	}{
		"the local machine is refused even if all public addresses are allowed":        {[]string{"*"}, "https://" + trap, errNotPublic},
		"a private address is refused even if all public addresses are allowed":        {[]string{"*"}, "https://10.0.0.9", errNotPublic},
		"the local machine's name is refused even if all public addresses are allowed": {[]string{"*"}, "https://localhost:" + port, errNotPublic},
		"a server without TLS is refused even if all public addresses are allowed":     {[]string{"*"}, "http://registry.example", errPlainHTTP},
		"a metadata service is refused even if all public addresses are allowed":       {[]string{"*"}, "https://169.254.169.254", errNotPublic},
		"a listed name is refused without TLS":                                         {[]string{"localhost"}, "http://localhost:" + port, errPlainHTTP},
		"an unlisted name is refused":                                                  {[]string{"registry.example"}, "https://localhost:" + port, errNotPublic},
		"an address outside of the listed network is refused":                          {[]string{"10.0.0.0/8"}, "https://" + trap, errNotPublic},
		"the protocol ftp is refused":                                                  {[]string{"*", "http://127.0.0.2"}, "ftp://" + trap, errPlainHTTP},
	} {
		p, err := ParsePolicy(row.list)
		if err != nil {
			t.Fatal(err)
		}
		transport := newGuardedTransport(p, nil)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, row.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := transport.RoundTrip(request); !errors.Is(err, row.want) {
			t.Errorf("%s: expected %v, found %v", what, row.want, err)
			if err == nil {
				_ = answer.Body.Close()
			}
		}
		transport.closeIdleConnections()
	}
	if n := trapped.Load(); n != 0 {
		t.Errorf("expected no connection, found %d", n)
	}
	for _, list := range [][]string{{"127.0.0.0/8"}, {"127.0.0.2", "*"}, {"http://127.0.0.2"}} {
		p, err := ParsePolicy(list)
		if err != nil {
			t.Fatal(err)
		}
		connection, err := p.dial(t.Context(), "tcp", trap)
		if err != nil {
			t.Errorf("%v: expected a connection, found %v", list, err)
			continue
		}
		_ = connection.Close()
	}
}
