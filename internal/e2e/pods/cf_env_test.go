// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	testenv.ExpectNoError(t, err)
	client, err := kubernetes.NewForConfig(cfg)
	testenv.ExpectNoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(space))
	c.podLister = factory.Core().V1().Pods().Lister().Pods(space)
	factory.Core().V1().Pods().Informer()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

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
	testenv.ExpectNoError(t, err)
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

type pushedApp struct {
	*cfEnv
	guid string
}

func (a pushedApp) path(more string) string { return "/v3/apps/" + a.guid + more }

// listInstances are the app's Pods in the order of their names.
func (a pushedApp) listInstances(t *testing.T) []*corev1.Pod {
	t.Helper()
	all, err := a.podLister.List(labels.SelectorFromSet(labels.Set{korifiv1alpha1.AppGUIDLabel: a.guid}))
	testenv.ExpectNoError(t, err)
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

const (
	probeInterval = 10 * time.Millisecond
	// probeLimit is how long one answer may take. An address of a Pod that is gone often does not answer at all.
	probeLimit = 500 * time.Millisecond
)

// probeAnswer is one of an app's, or of its stats.
type probeAnswer struct {
	asked, at time.Time
	// revision and index are those of the instance that answered.
	revision, index string
	// running and rows are what stats say, in body.
	running, rows int
	body          string
}

// appProbe asks every Pod that an app ever had, past any Service, and its stats, again and again.
type appProbe struct {
	pushedApp
	http *http.Client
	stop context.CancelFunc
	work sync.WaitGroup

	mu             sync.Mutex
	answers, stats []probeAnswer
	// lastSeen is when a Pod of a revision was seen last.
	lastSeen map[string]time.Time
}

func (a pushedApp) startProbe(t *testing.T) *appProbe {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &appProbe{pushedApp: a, stop: cancel, lastSeen: map[string]time.Time{}, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeLimit}}
	seen := map[string]bool{}
	p.repeat(ctx, func() {
		for _, pod := range a.listInstances(t) {
			p.lastSeen[pod.Labels[korifiv1alpha1.VersionLabel]] = time.Now()
			if ip := pod.Status.PodIP; ip != "" && !seen[ip] {
				seen[ip] = true
				p.repeat(ctx, func() { p.askPod(ip) })
			}
		}
	})
	p.repeat(ctx, func() { p.askStats(ctx, t) })
	return p
}

func (p *appProbe) repeat(ctx context.Context, f func()) {
	p.work.Go(func() {
		tick := time.NewTicker(probeInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			f()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
}

func (p *appProbe) stopAndRead() (answers, stats []probeAnswer) {
	p.stop()
	p.work.Wait()
	return p.answers, p.stats
}

// goneAt is when the last Pod of a revision was; it may be asked for once the probe has ended.
func (p *appProbe) goneAt(revision string) time.Time { return p.lastSeen[revision] }

func (p *appProbe) askPod(ip string) {
	asked := time.Now()
	env, err := readEnvironment(p.http, "http://"+ip+":8080/")
	if err != nil {
		return
	}
	got := probeAnswer{asked: asked, at: time.Now(), revision: revisionFromEnv(env), index: env["CF_INSTANCE_INDEX"]}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, got)
}

func (p *appProbe) askStats(ctx context.Context, t *testing.T) {
	asked := time.Now()
	got, err := p.requestAs(t, p.carol, http.StatusOK, "GET", p.path("/processes/web/stats"), "")
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats = append(p.stats, probeAnswer{
		asked: asked, at: time.Now(), running: strings.Count(got.Body, `"`+string(korifiv1alpha1.RunningInstance)+`"`), rows: strings.Count(got.Body, `"index":`), body: got.Body,
	})
}

func (p *appProbe) waitForAnswers(t *testing.T, revision string, instances int, since time.Time) {
	t.Helper()
	eventually(t, "revision "+revision+" answers", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		from := map[string]bool{}
		for _, a := range p.answers {
			if a.revision == revision && a.asked.After(since) {
				from[a.index] = true
			}
		}
		return testenv.ErrorIf(len(from) < instances, "not yet")
	})
}

func readEnvironment(client *http.Client, url string) (map[string]string, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var env map[string]string
	return env, json.NewDecoder(response.Body).Decode(&env)
}

func revisionFromEnv(env map[string]string) string {
	var application struct {
		Version string `json:"application_version"`
	}
	if json.Unmarshal([]byte(env["VCAP_APPLICATION"]), &application) != nil {
		return ""
	}
	return application.Version
}

// longestGap is the longest time between two answers that follow each other.
func longestGap(answers []probeAnswer) time.Duration {
	var gap time.Duration
	for i := 1; i < len(answers); i++ {
		gap = max(gap, answers[i].at.Sub(answers[i-1].at))
	}
	return gap
}

// firstAndLast are the first and the last answer of a revision; nil if there is none.
func firstAndLast(answers []probeAnswer, revision string) (first, last *probeAnswer) {
	for i := range answers {
		if answers[i].revision != revision {
			continue
		}
		if first == nil {
			first = &answers[i]
		}
		last = &answers[i]
	}
	return first, last
}

// serviceTraffic are requests through a Service, one after the other, each on a connection of its own.
type serviceTraffic struct {
	answers []probeAnswer
	refused []error
}

// startTraffic goes on until end is called.
func (a pushedApp) startTraffic(t *testing.T, url string) (end func() serviceTraffic) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &appProbe{http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeLimit}}
	var all serviceTraffic
	p.repeat(ctx, func() {
		asked := time.Now()
		env, err := readEnvironment(p.http, url)
		if err != nil {
			all.refused = append(all.refused, err)
			return
		}
		all.answers = append(all.answers, probeAnswer{asked: asked, at: time.Now(), revision: revisionFromEnv(env)})
	})
	return func() serviceTraffic {
		cancel()
		p.work.Wait()
		return all
	}
}

type instanceStats struct {
	Index   int    `json:"index"`
	State   string `json:"state"`
	Details string `json:"details"`
}

func (a pushedApp) readStats(t *testing.T) []instanceStats {
	t.Helper()
	var stats struct {
		Resources []instanceStats `json:"resources"`
	}
	body := a.mustRequest(t, http.StatusOK, "GET", a.path("/processes/web/stats"), "").Body
	testenv.ExpectNoError(t, json.Unmarshal([]byte(body), &stats))
	return stats.Resources
}

func (a pushedApp) waitUntilRunning(t *testing.T, instances int) time.Time {
	t.Helper()
	eventually(t, "all instances run", func() error {
		got, err := a.request(t, http.StatusOK, "GET", a.path("/processes/web/stats"), "")
		if err == nil && (strings.Count(got.Body, `"RUNNING"`) != instances || conversation.JSONField(t, got.Body, "resources.0.state") != "RUNNING") {
			err = errors.New("found " + got.Body)
		}
		return err
	})
	return time.Now()
}
