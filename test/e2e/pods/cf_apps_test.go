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
	"net"
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
	"github.com/torpor-dev/torpor/internal/manager"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

const (
	space = "dev"
	// callerRate is higher than the request rate of the tests.
	callerRate = "1000"
)

// cfEnv adds the CF API and its admission. alice and carol are developers in the space. Two callers are needed
// because the API delays the polls of the caller that started an app until something changes, but answers all others
// immediately.
type cfEnv struct {
	*podsEnv
	url          string
	alice, carol string
	http         *http.Client
	// gateway is the address of the reverse proxy.
	gateway string
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
	c.startGateway(t)
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

// startGateway installs the kinds of the Gateway API, and starts a reverse proxy for a Gateway.
func (c *cfEnv) startGateway(t *testing.T) {
	t.Helper()
	c.kubectl(t, "apply", "--server-side", "-f", testenv.FindHTTPRouteCRD(t))
	// kubectl cannot wait for a condition of a definition that has no conditions yet.
	c.kubectl(t, "wait", "--for=jsonpath={.status.conditions}", "crd/httproutes.gateway.networking.k8s.io")
	c.kubectl(t, "wait", "--for=condition=Established", "crd/httproutes.gateway.networking.k8s.io")
	c.apply(t, "domain.yaml")
	c.gateway = testenv.StartProcess(t, filepath.Join(c.programs, "local"), []string{
		"gateway", "--kubeconfig", c.kubeconfig(), "--gateway", "infra/apps",
	}, nil).WaitForLine(t, "address: ")
}

// startAdmission starts the manager with its admission next to the cluster.
func (c *cfEnv) startAdmission(t *testing.T, manifests string) {
	t.Helper()
	address := testenv.FreeAddress(t)
	c.kubectl(t, "apply", "-f", manifests)
	for kind, path := range map[string]string{"mutatingwebhookconfiguration": "/mutate-cfapps", "validatingwebhookconfiguration": "/validate-cfapps"} {
		c.kubectl(t, "patch", kind, "torpor", "--type=json", "-p", fmt.Sprintf(
			`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://%s%s"}]`, address, path))
	}
	// The images exist only on the node, and in no registry.
	c.startManager(t, "--namespace", "torpor-system", "--webhook-address", address, "--trust-node-images", "--route-gateway", "infra/apps")
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

// watchPods keeps the Pods of c.podLister up to date until the test ends.
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

// pushApp creates an app of an image as cf push does, and starts it; more contains additional lines of its manifest.
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

// listInstances returns the app's Pods, sorted by name.
func (a pushedApp) listInstances(t *testing.T) []*corev1.Pod {
	t.Helper()
	all, err := a.podLister.List(labels.SelectorFromSet(labels.Set{korifiv1alpha1.AppGUIDLabel: a.guid}))
	testenv.ExpectNoError(t, err)
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

const (
	probeInterval = 10 * time.Millisecond
	// probeLimit is the time limit for one answer. Often there is no answer from the address of a deleted Pod.
	probeLimit = 500 * time.Millisecond
	// trafficLimit is a client's time limit for an answer through a Service. It is much longer than an answer takes
	// on a busy machine. A connection to a deleted Pod is never answered.
	trafficLimit = 5 * time.Second
)

// probeAnswer is an answer of an app, or of its stats.
type probeAnswer struct {
	asked, at time.Time
	// revision and index are those of the instance that answered.
	revision, index string
	// running is the number of running instances in the stats, and rows the number of all.
	running, rows int
	body          string
}

// appProbe polls all Pods that an app has ever had, without a Service, and its stats.
type appProbe struct {
	pushedApp
	http *http.Client
	stop context.CancelFunc
	work sync.WaitGroup

	mu             sync.Mutex
	answers, stats []probeAnswer
	// lastSeen is the time at which a Pod of each revision was last observed.
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

// goneAt returns the time at which a Pod of a revision was last observed; call it after the probe has ended.
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

func (p *appProbe) waitForAnswers(t *testing.T, revision string, since time.Time) {
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
		return testenv.ErrorIf(len(from) < shopInstances, "not yet")
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

// longestGap returns the longest time between two consecutive answers.
func longestGap(answers []probeAnswer) time.Duration {
	var gap time.Duration
	for i := 1; i < len(answers); i++ {
		gap = max(gap, answers[i].at.Sub(answers[i-1].at))
	}
	return gap
}

// firstAndLast returns the first and the last answer of a revision; nil without answers.
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

// serviceTraffic is the result of consecutive requests through a Service, each with its own connection.
type serviceTraffic struct {
	answers []probeAnswer
	refused []error
}

// dialEach returns a client that always connects to the same address, with a new connection for each request.
func dialEach(address string) *http.Client {
	return &http.Client{Timeout: trafficLimit, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}}
}

// startTraffic requests a URL at an address repeatedly until end is called.
func (a pushedApp) startTraffic(t *testing.T, url, address string) (end func() serviceTraffic) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &appProbe{http: dialEach(address)}
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

const (
	webapp = "localhost/webapp:1"
	// stopDelay is how long the app continues to answer after SIGTERM.
	stopDelay     = 3 * time.Second
	shopInstances = 2
)

// TestAppsOnRealPods tests apps through the CF API, in a space with restricted Pods.
func TestAppsOnRealPods(t *testing.T) {
	s := &appSuite{cfEnv: newCFEnv(t), whole: t}
	runSteps(t, s, []testStep[*appSuite]{
		{"an app is pushed and answers", (*appSuite).testPush},
		{"health checks start to fail", (*appSuite).failHealthChecks},
		{"a restart never shows two revisions", (*appSuite).testRestart},
		{"a rolling deployment always answers", (*appSuite).testRollingDeployment},
		{"one instance is restarted", (*appSuite).testInstanceRestart},
		{"the app's output is read", (*appSuite).testRecentLogs},
		{"an instance crashes", (*appSuite).testInstanceCrash},
		{"apps that never work report why", (*appSuite).testBrokenApps},
		{"health checks that fail are noticed", (*appSuite).testFailedHealthChecks},
		{"a restart of instances that end immediately does not pause", (*appSuite).testQuickRestart},
		{"the page is opened with the user's credentials", (*appSuite).testPage},
		{"a stopped app has no container, a deleted app has no object", (*appSuite).testStopAndDelete},
	})
}

// appSuite is the common state of the steps.
type appSuite struct {
	*cfEnv
	// whole is the testing.T of the test that contains all steps.
	whole         *testing.T
	shop          pushedApp
	unhealthyApps []*unhealthyApp
}

func (s *appSuite) testPush(t *testing.T) {
	s.shop = s.pushApp(t, "shop", webapp, "instances: 2", "env: {COLOUR: red, STOP_DELAY: "+stopDelay.String()+"}")
	began := time.Now()
	p := s.shop.startProbe(t)
	p.waitForAnswers(t, "0", began)
	answering := time.Since(began)
	s.logf(t, "pushed: both instances answer %.2fs after the start, and stats say so after %.2fs", answering.Seconds(), s.shop.waitUntilRunning(t, shopInstances).Sub(began).Seconds())
	p.stopAndRead()
	for i, pod := range s.shop.listInstances(t) {
		env, err := readEnvironment(p.http, "http://"+pod.Status.PodIP+":8080/")
		testenv.ExpectNoError(t, err)
		for name, want := range map[string]string{
			"PORT": "8080", "COLOUR": "red", "MEMORY_LIMIT": "64M", "CF_INSTANCE_INDEX": fmt.Sprint(i), "POD_NAME": pod.Name,
			"CF_INSTANCE_INTERNAL_IP": pod.Status.PodIP, "CF_INSTANCE_IP": pod.Status.HostIP, "CF_INSTANCE_GUID": string(pod.UID),
		} {
			if env[name] != want {
				t.Errorf("%s: expected %q, found %q", name, want, env[name])
			}
		}
		s.expectVCAPApplication(t, env["VCAP_APPLICATION"])
	}
}

// expectVCAPApplication checks the environment variable in which Cloud Foundry describes an app.
func (s *appSuite) expectVCAPApplication(t *testing.T, raw string) {
	t.Helper()
	var found map[string]any
	if err := json.Unmarshal([]byte(raw), &found); err != nil {
		t.Fatalf("VCAP_APPLICATION: expected JSON, found %q: %v", raw, err)
	}
	for name, want := range map[string]any{"application_id": s.shop.guid, "application_name": "shop", "application_version": "0", "space_id": space, "process_type": "web"} {
		if found[name] != want {
			t.Errorf("%s in VCAP_APPLICATION: expected %q, found %q", name, want, found[name])
		}
	}
}

// testRestart restarts the app in both ways that clients use, while every Pod is polled for its revision.
func (s *appSuite) testRestart(t *testing.T) {
	for i, actions := range [][]string{{"restart"}, {"stop", "start"}} {
		before, revision := fmt.Sprint(i), fmt.Sprint(i+1)
		p := s.shop.startProbe(t)
		p.waitForAnswers(t, before, time.Now())
		for _, action := range actions {
			s.mustRequest(t, http.StatusOK, "POST", s.shop.path("/actions/"+action), "")
		}
		asked := time.Now()
		p.waitForAnswers(t, revision, asked)
		s.shop.waitUntilRunning(t, shopInstances)
		answers, stats := p.stopAndRead()
		_, last := firstAndLast(answers, before)
		first, _ := firstAndLast(answers, revision)
		if overlap := last.asked.Sub(first.at); overlap > 0 {
			t.Errorf("revision %s still answered %s after %s had begun to", before, overlap, revision)
		}
		if kept := last.at.Sub(asked); kept < stopDelay/2 {
			t.Errorf("the old instances: expected them to end in their own time, about %s, found %s", stopDelay, kept)
		}
		expectHonestStats(t, stats, asked, last.asked)
		s.logf(t, "%s: the old revision answered for %.2fs more, its Pods were gone %.2fs later, and the new one answered %.2fs after that", strings.Join(actions, " and "),
			last.at.Sub(asked).Seconds(), p.goneAt(before).Sub(last.at).Seconds(), first.at.Sub(p.goneAt(before)).Seconds())
	}
}

// expectHonestStats compares stats with the answers of Pods: no instance may be reported as running while only an
// older revision answers.
func expectHonestStats(t *testing.T, stats []probeAnswer, asked, lastOld time.Time) {
	t.Helper()
	looked := 0
	for _, s := range stats {
		if s.rows != shopInstances {
			t.Errorf("rows of stats: expected %d, found %d", shopInstances, s.rows)
		}
		if s.asked.Before(asked) || s.at.After(lastOld) {
			continue
		}
		if looked++; s.running > 0 {
			t.Errorf("stats reported %d running instances %s after the restart, when only the old ones answered", s.running, s.at.Sub(asked))
		}
	}
	if looked == 0 {
		t.Error("expected stats of the time in which the old revision still answered, found none")
	}
	t.Logf("%d of %d stats were requested while the old revision still answered", looked, len(stats))
}

// shopAddress is the address of the app's route.
const shopAddress = "shop.apps.example.com"

// testRollingDeployment replaces instances that end slowly, and then instances that end immediately, during requests
// through a Service and through a reverse proxy.
func (s *appSuite) testRollingDeployment(t *testing.T) {
	s.mapRoute(t)
	s.mustRequest(t, http.StatusOK, "PATCH", s.shop.path("/environment_variables"), `{"var":{"STOP_DELAY":"0s"}}`)
	for _, row := range []struct{ old, revision string }{{"that continue to answer for " + stopDelay.String(), "3"}, {"that end immediately", "4"}} {
		took, answers, through := s.deployRolling(t)
		if gap := longestGap(answers); gap > stopDelay {
			t.Errorf("some Pod answers: expected always, found none for %s", gap)
		}
		s.logf(t, "rolled instances %s in %.2fs; the longest time without an answer was %d ms of the Pods", row.old, took.Seconds(), longestGap(answers).Milliseconds())
		for way, traffic := range through {
			if first, _ := firstAndLast(traffic.answers, row.revision); first == nil {
				t.Errorf("expected revision %s to answer through %s, found that it did not", row.revision, way)
			}
			if len(traffic.refused) > 0 {
				t.Errorf("requests through %s: expected all answered, found %d that were not: %v", way, len(traffic.refused), traffic.refused[0])
			}
			s.logf(t, "through %s %d requests were answered and %d refused; the longest time without an answer was %d ms",
				way, len(traffic.answers), len(traffic.refused), longestGap(traffic.answers).Milliseconds())
		}
	}
	s.expectKnownAddress(t)
}

// expectKnownAddress checks the address in an instance's environment.
func (s *appSuite) expectKnownAddress(t *testing.T) {
	t.Helper()
	env, err := readEnvironment(dialEach(s.gateway), "http://"+shopAddress+"/")
	if err != nil || !strings.Contains(env["VCAP_APPLICATION"], `"application_uris":["`+shopAddress+`"]`) {
		t.Errorf("VCAP_APPLICATION: expected the address, found %q (%v)", env["VCAP_APPLICATION"], err)
	}
}

// mapRoute gives the app an address, and waits until it answers at this address, which is in its environment from
// its next start.
func (s *appSuite) mapRoute(t *testing.T) {
	began := time.Now()
	domain := conversation.JSONField(t, s.mustRequest(t, http.StatusOK, "GET", "/v3/organizations/the-org/domains/default", "").Body, "guid")
	made := s.mustRequest(t, http.StatusCreated, "POST", "/v3/routes", `{"host":"shop","relationships":{"space":{"data":{"guid":"`+space+`"}},"domain":{"data":{"guid":"`+domain+`"}}}}`)
	s.mustRequest(t, http.StatusOK, "POST", "/v3/routes/"+conversation.JSONField(t, made.Body, "guid")+"/destinations", `{"destinations":[{"app":{"guid":"`+s.shop.guid+`"}}]}`)
	eventually(t, "the app answers at the address", func() error {
		_, err := readEnvironment(dialEach(s.gateway), "http://"+shopAddress+"/")
		return err
	})
	s.logf(t, "the address answered %.2fs after the request for it", time.Since(began).Seconds())
	eventually(t, "the route is ready", func() error {
		out := s.kubectl(t, "get", "cfroutes", "--namespace="+space, "-o", "jsonpath={.items[0].status.conditions[?(@.type=='Ready')].reason}")
		return testenv.ErrorIf(out != korifiv1alpha1.AddressServedReason, "found %s", out)
	})
}

// deployRolling performs a rolling deployment. It returns its duration, and the answers until the old instances had
// ended.
func (s *appSuite) deployRolling(t *testing.T) (took time.Duration, answers []probeAnswer, through map[string]serviceTraffic) {
	t.Helper()
	service := s.kubectl(t, "get", "services", "--namespace="+space, "-o", "jsonpath={.items[0].spec.clusterIP}")
	// A node may apply a new Service with a delay of a second.
	eventually(t, "the Service answers", func() error {
		_, err := readEnvironment(dialEach(service+":80"), "http://"+service+"/")
		return err
	})
	p, began := s.shop.startProbe(t), time.Now()
	ends := map[string]func() serviceTraffic{
		"the Service": s.shop.startTraffic(t, "http://"+service+"/", service+":80"), "the reverse proxy": s.shop.startTraffic(t, "http://"+shopAddress+"/", s.gateway),
	}
	made := s.mustRequest(t, http.StatusCreated, "POST", "/v3/deployments", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"`+s.shop.guid+`"}}}}`)
	eventually(t, "the deployment has ended", func() error {
		got, err := s.request(t, http.StatusOK, "GET", "/v3/deployments/"+conversation.JSONField(t, made.Body, "guid"), "")
		if err != nil {
			return err
		}
		reason := conversation.JSONField(t, got.Body, "status.reason")
		return testenv.ErrorIf(reason != "DEPLOYED", "%s", "found "+reason)
	})
	took = time.Since(began)
	eventually(t, "the old instances are gone", func() error {
		n := len(s.shop.listInstances(t))
		return testenv.ErrorIf(n != shopInstances, "found %d", n)
	})
	answers, _ = p.stopAndRead()
	slices.SortFunc(answers, func(a, b probeAnswer) int { return a.at.Compare(b.at) })
	through = map[string]serviceTraffic{}
	for way, end := range ends {
		through[way] = end()
	}
	return took, answers, through
}

// testQuickRestart restarts instances that end immediately. The old ones must end without the delay of a rolling
// deployment.
func (s *appSuite) testQuickRestart(t *testing.T) {
	const restarts, before = 5, 4
	var ends, runs []time.Duration
	for i := range restarts {
		old, revision := fmt.Sprint(before+i), fmt.Sprint(before+i+1)
		p := s.shop.startProbe(t)
		p.waitForAnswers(t, old, time.Now())
		s.mustRequest(t, http.StatusOK, "POST", s.shop.path("/actions/restart"), "")
		asked := time.Now()
		p.waitForAnswers(t, revision, asked)
		runs = append(runs, s.shop.waitUntilRunning(t, shopInstances).Sub(asked))
		answers, _ := p.stopAndRead()
		_, last := firstAndLast(answers, old)
		first, _ := firstAndLast(answers, revision)
		ends = append(ends, last.at.Sub(asked))
		if overlap := last.asked.Sub(first.at); overlap > 0 {
			t.Errorf("revision %s still answered %s after %s had begun to", old, overlap, revision)
		}
	}
	slices.Sort(ends)
	slices.Sort(runs)
	// On a busy machine, one of them may take long.
	if median := ends[restarts/2]; median > manager.DefaultInstanceStopDelay {
		t.Errorf("expected the old instances to end immediately, found that they answered for %s", median)
	}
	s.logf(t, "restarts of instances that end immediately: the old ones answered for %.2fs and the new ones ran after %.2fs, each the median of %d",
		ends[restarts/2].Seconds(), runs[restarts/2].Seconds(), restarts)
}

func (s *appSuite) testInstanceRestart(t *testing.T) {
	before := s.shop.listInstances(t)
	began := time.Now()
	s.mustRequest(t, http.StatusNoContent, "DELETE", s.shop.path("/processes/web/instances/1"), "")
	eventually(t, "instance 1 is replaced and runs", func() error {
		now := s.shop.listInstances(t)
		if len(now) != shopInstances || now[1].UID == before[1].UID {
			return errors.New("not yet")
		}
		if now[0].UID != before[0].UID {
			t.Fatal("instance 0: expected the same Pod, found another")
		}
		got := s.shop.readStats(t)
		return testenv.ErrorIf(got[0].State != "RUNNING" || got[1].State != "RUNNING", "found %v", got)
	})
	s.logf(t, "instance 1 was restarted in %.2fs", time.Since(began).Seconds())
}

// testRecentLogs compares the output of cf logs --recent with what the app printed.
func (s *appSuite) testRecentLogs(t *testing.T) {
	for i := range shopInstances {
		s.orderInstance(t, s.shop, i, fmt.Sprintf("/say/hello-from-%d", i))
	}
	eventually(t, "the lines are read", func() error {
		lines := s.shop.recentLogs(t)
		for i := range shopInstances {
			if want := fmt.Sprintf("%d hello-from-%d", i, i); !slices.Contains(lines, want) {
				return fmt.Errorf("expected %q, found %q", want, lines)
			}
		}
		return nil
	})
	if lines := s.shop.recentLogs(t); !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "0 listens on ") }) {
		t.Errorf("expected the first line that an instance printed, found %q", lines)
	}
}

// recentLogs returns the lines of an app's log, the newest first, each prefixed with the index of its instance.
func (a pushedApp) recentLogs(t *testing.T) []string {
	t.Helper()
	body := a.mustRequest(t, http.StatusOK, "GET", "/api/v1/read/"+a.guid+"?descending=true&envelope_types=LOG&limit=1000&start_time=-6795364578871345152", "").Body
	lines, err := conversation.ReadLogLines(body)
	testenv.ExpectNoError(t, err)
	return lines
}

// orderInstance sends a command to an instance. An instance that ends because of it does not answer.
func (c *cfEnv) orderInstance(t *testing.T, a pushedApp, index int, order string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.listInstances(t)[index].Status.PodIP+":8080"+order, http.NoBody)
	testenv.ExpectNoError(t, err)
	if response, err := http.DefaultClient.Do(r); err == nil {
		_ = response.Body.Close()
	}
}

func (s *appSuite) testStopAndDelete(t *testing.T) {
	var uids []string
	for _, pod := range s.shop.listInstances(t) {
		uids = append(uids, string(pod.UID))
	}
	if n := len(findPodProcesses(t, uids...)); n == 0 {
		t.Fatal("processes of a running app: expected some, found none")
	}
	began := time.Now()
	s.mustRequest(t, http.StatusOK, "POST", s.shop.path("/actions/stop"), "")
	eventually(t, "no process of the app is left on the machine", func() error {
		left := findPodProcesses(t, uids...)
		return testenv.ErrorIf(len(left)+len(s.shop.listInstances(t)) > 0, "found %v", left)
	})
	s.logf(t, "stopped: no container is left after %.2fs", time.Since(began).Seconds())
	for _, r := range s.shop.readStats(t) {
		if r.State != "DOWN" {
			t.Errorf("a stopped app: expected DOWN, found %v", r)
		}
	}
	job := s.mustRequest(t, http.StatusAccepted, "DELETE", s.shop.path(""), "").Location
	s.waitForJob(t, job)
	s.mustRequest(t, http.StatusNotFound, "GET", s.shop.path(""), "")
	eventually(t, "nothing of the app is left", func() error {
		out := s.kubectl(t, "get", "cfapps,cfprocesses,cfpackages,cfbuilds,cfdeployments,lrps,statefulsets,controllerrevisions,pods,poddisruptionbudgets,secrets", "--namespace="+space, "-o", "name")
		return testenv.ErrorIf(out != "", "%s", "found "+out)
	})
}

// testInstanceCrash makes one of two instances exit with a status. The kubelet restarts it immediately, so the test
// observes its start.
func (s *appSuite) testInstanceCrash(t *testing.T) {
	before, p, began := s.shop.listInstances(t), s.shop.startProbe(t), time.Now()
	s.orderInstance(t, s.shop, 0, "/exit/7")
	eventually(t, "the kubelet starts the container once more", func() error {
		n := countRestarts(s.shop.listInstances(t)[0])
		return testenv.ErrorIf(n != 1, "found %d restarts", n)
	})
	s.shop.waitUntilRunning(t, shopInstances)
	s.logf(t, "an instance that crashed ran again after %.2fs", time.Since(began).Seconds())
	_, stats := p.stopAndRead()
	if !slices.ContainsFunc(stats, func(a probeAnswer) bool { return a.running == 1 && strings.Contains(a.body, "exited with status 7") }) {
		t.Error("expected stats to report the crash and the other running instance, found that they never did")
	}
	if now := s.shop.listInstances(t); now[0].UID != before[0].UID || now[1].UID != before[1].UID || countRestarts(now[1]) > 0 {
		t.Error("expected the same Pods and the same other container, found another")
	}
	if lines := s.shop.recentLogs(t); !slices.Contains(lines, "0 ends with status 7") {
		t.Errorf("expected the last output of a crashed container in the logs, found %q", lines)
	}
}

// testBrokenApps creates several apps that can never run; each must report the reason.
func (s *appSuite) testBrokenApps(t *testing.T) {
	rows := map[string]struct {
		image, state, details string
		manifest              []string
	}{
		"exits":   {webapp, "CRASHED", "exited with status 3", []string{"env: {EXIT: '3'}"}},
		"ends":    {webapp, "CRASHED", "exited with status 0", []string{"env: {EXIT: '0'}"}},
		"greedy":  {webapp, "CRASHED", "exited with status 137 (OOMKilled)", []string{"env: {EAT: '128'}"}},
		"root":    {"localhost/busybox:1", "CRASHED", "image will run as root", nil},
		"missing": {"localhost/nothing:1", "CRASHED", "ImagePullBackOff: ", nil},
		"shell":   {webapp, "CRASHED", "/bin/sh", []string{"command: run"}},
		"unwell":  {webapp, "CRASHED", "http health check", []string{"health-check-type: http", "health-check-http-endpoint: /health", "timeout: 2", "env: {SICK: 'yes'}"}},
	}
	began, apps := time.Now(), map[string]pushedApp{}
	for name, of := range rows {
		apps[name] = s.pushApp(t, name, of.image, of.manifest...)
	}
	for name, want := range rows {
		t.Run(name, func(t *testing.T) {
			a := apps[name]
			eventually(t, "the app reports the reason", func() error {
				got := a.readStats(t)[0]
				if got.State != want.state || !strings.Contains(got.Details, want.details) {
					return fmt.Errorf("expected %s %q, found %+v", want.state, want.details, got)
				}
				s.logf(t, "%s after %.1fs: %s", got.State, time.Since(began).Seconds(), got.Details)
				return nil
			})
		})
	}
	if lines := apps["exits"].recentLogs(t); !slices.Contains(lines, "0 the app ends at once with status 3") {
		t.Errorf("expected the output of an app that never ran in the logs, found %q", lines)
	}
	for _, a := range apps {
		s.deleteApp(t, a)
	}
}

// unhealthyApp is an app whose health check fails.
type unhealthyApp struct {
	pushedApp
	order string
	probe *appProbe
	since time.Time
}

// failHealthChecks makes the health checks of two running apps fail: one by HTTP, the other at its port.
func (s *appSuite) failHealthChecks(t *testing.T) {
	for _, it := range []*unhealthyApp{
		{order: "/sick", pushedApp: s.pushApp(t, "sick", webapp, "health-check-type: http", "health-check-http-endpoint: /health")},
		{order: "/deaf", pushedApp: s.pushApp(t, "deaf", webapp)},
	} {
		it.waitUntilRunning(t, 1)
		s.orderInstance(t, it.pushedApp, 0, it.order)
		it.since, it.probe = time.Now(), it.startProbe(s.whole)
		s.unhealthyApps = append(s.unhealthyApps, it)
	}
}

// testFailedHealthChecks waits until the failure is noticed; the liveness check runs twice a minute.
func (s *appSuite) testFailedHealthChecks(t *testing.T) {
	for _, it := range s.unhealthyApps {
		eventually(t, "the instance is restarted", func() error {
			n := countRestarts(it.listInstances(t)[0])
			return testenv.ErrorIf(n != 1, "found %d restarts", n)
		})
		s.logf(t, "%s: it was restarted %.1fs later", it.order, time.Since(it.since).Seconds())
		it.waitUntilRunning(t, 1)
		_, stats := it.probe.stopAndRead()
		if !slices.ContainsFunc(stats, func(a probeAnswer) bool { return a.running == 0 }) {
			t.Errorf("%s: expected stats not to report it as running in that time, found that they always did", it.order)
		}
		s.deleteApp(t, it.pushedApp)
	}
}

func (s *appSuite) deleteApp(t *testing.T, a pushedApp) {
	t.Helper()
	s.mustRequest(t, http.StatusAccepted, "DELETE", a.path(""), "")
}

func countRestarts(pod *corev1.Pod) int32 {
	var n int32
	for _, c := range pod.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}
