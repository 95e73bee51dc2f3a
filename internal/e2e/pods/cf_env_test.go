// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

const (
	space = "dev"
	// callerRate is above what the tests ask.
	callerRate = "1000"
)

// cfEnv adds the CF API and its admission. alice and carol develop in the space. Two callers are needed because the API
// holds the polls of the one who started an app until something changes, and answers everybody else at once.
type cfEnv struct {
	*podsEnv
	url          string
	alice, carol string
	http         *http.Client
	// podLister lists the Pods of the space from a watch.
	podLister corelisters.PodNamespaceLister
}

func newCFEnv(t *testing.T) *cfEnv {
	t.Helper()
	c := &cfEnv{podsEnv: newPodsEnv(t)}
	c.startCluster(t)
	config := filepath.Join("..", "..", "..", "config")
	c.kubectl(t, "apply", "-k", filepath.Join(config, "rbac", "cf"))
	c.apply(t, "space.yaml")
	c.startAdmission(t, filepath.Join(config, "webhook", "manifests.yaml"))
	c.startCFAPI(t)
	c.alice = c.kubectl(t, "create", "token", "alice", "--namespace=torpor-system")
	c.carol = c.kubectl(t, "create", "token", "carol", "--namespace=torpor-system")
	c.watchPods(t)
	eventually(t, "alice sees the space", func() error {
		_, err := c.request(t, http.StatusOK, "GET", "/v3/spaces/"+space, "")
		return err
	})
	c.logf(t, "torpor and its CF API run")
	return c
}

// startAdmission starts the manager with its admission beside the cluster.
func (c *cfEnv) startAdmission(t *testing.T, manifests string) {
	t.Helper()
	address := testenv.FreeAddress(t)
	c.kubectl(t, "apply", "-f", manifests)
	for kind, path := range map[string]string{"mutatingwebhookconfiguration": "/mutate-cfapps", "validatingwebhookconfiguration": "/validate-cfapps"} {
		c.kubectl(t, "patch", kind, "torpor", "--type=json", "-p", fmt.Sprintf(
			`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://%s%s"}]`, address, path))
	}
	c.startManager(t, "--namespace", "torpor-system", "--webhook-address", address)
}

func (c *cfEnv) startCFAPI(t *testing.T) {
	t.Helper()
	folder, address := t.TempDir(), testenv.FreeAddress(t)
	testenv.StartProcess(t, filepath.Join(c.tools, "torpor"), []string{
		"cf-api", "--kubeconfig", c.kubeconfigOf(t, "torpor-cf-api"), "--address", address, "--tls-folder", folder, "--caller-rate", callerRate,
	}, nil)
	c.url = "https://" + address
	eventually(t, "the CF API answers", func() error {
		ca, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		c.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
		_, err = c.request(t, http.StatusOK, "GET", "/healthz", "")
		return err
	})
	t.Cleanup(c.http.CloseIdleConnections)
}

// watchPods keeps c.known up to date until the test ends.
func (c *cfEnv) watchPods(t *testing.T) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(space))
	c.podLister = factory.Core().V1().Pods().Lister().Pods(space)
	factory.Core().V1().Pods().Informer()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

// request sends a request as alice.
func (c *cfEnv) request(t *testing.T, want int, method, path, body string) (conversation.APIAnswer, error) {
	t.Helper()
	return c.requestAs(t, c.alice, want, method, path, body)
}

func (c *cfEnv) requestAs(t *testing.T, token string, want int, method, path, body string) (answer conversation.APIAnswer, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return answer, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := c.http.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	answer = conversation.APIAnswer{Status: response.StatusCode, Location: response.Header.Get("Location"), Body: string(raw)}
	if err == nil && answer.Status != want {
		err = fmt.Errorf("%s %s: expected %d, found %d %s", method, path, want, answer.Status, answer.Body)
	}
	return answer, err
}

func (c *cfEnv) mustRequest(t *testing.T, want int, method, path, body string) conversation.APIAnswer {
	t.Helper()
	answer, err := c.request(t, want, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// pushApp makes an app of an image as cf push does, and starts it; more are further lines of its manifest.
func (c *cfEnv) pushApp(t *testing.T, name, image string, more ...string) pushedApp {
	t.Helper()
	manifest := fmt.Sprintf("applications:\n- name: %s\n  docker: {image: %s}\n  memory: 64M\n  %s\n", name, image, strings.Join(more, "\n  "))
	job := c.mustRequest(t, http.StatusAccepted, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest).Location
	c.waitForJob(t, job)
	field := func(a conversation.APIAnswer, path string) string { return conversation.JSONField(t, a.Body, path) }
	a := pushedApp{cfEnv: c, guid: field(c.mustRequest(t, http.StatusOK, "GET", "/v3/apps?names="+name, ""), "resources.0.guid")}
	of := `"relationships":{"app":{"data":{"guid":"` + a.guid + `"}}}`
	pkg := field(c.mustRequest(t, http.StatusCreated, "POST", "/v3/packages", `{"type":"docker","data":{"image":"`+image+`"},`+of+`}`), "guid")
	build := field(c.mustRequest(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+pkg+`"}}`), "guid")
	droplet := field(c.mustRequest(t, http.StatusOK, "GET", "/v3/builds/"+build, ""), "droplet.guid")
	c.mustRequest(t, http.StatusOK, "PATCH", a.path("/relationships/current_droplet"), `{"data":{"guid":"`+droplet+`"}}`)
	c.mustRequest(t, http.StatusOK, "POST", a.path("/actions/start"), "")
	return a
}

// waitForJob waits until a job is.
func (c *cfEnv) waitForJob(t *testing.T, job string) {
	t.Helper()
	eventually(t, "the job is complete", func() error {
		a, err := c.request(t, http.StatusOK, "GET", strings.TrimPrefix(job, c.url), "")
		if err == nil && conversation.JSONField(t, a.Body, "state") != "COMPLETE" {
			err = fmt.Errorf("found %s", a.Body)
		}
		return err
	})
}

// pushedApp is one that was pushed.
type pushedApp struct {
	*cfEnv
	guid string
}

func (a pushedApp) path(more string) string { return "/v3/apps/" + a.guid + more }

// listInstances are the app's Pods in the order of their names.
func (a pushedApp) listInstances(t *testing.T) []*corev1.Pod {
	t.Helper()
	all, err := a.podLister.List(labels.SelectorFromSet(labels.Set{korifiv1alpha1.AppGUIDLabel: a.guid}))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}
