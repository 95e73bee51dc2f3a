// SPDX-License-Identifier: Apache-2.0

// Package cf pushes, restarts, rolls and deletes an app through the CF API, prints the requests as curl commands, and
// repeats the restarts with the cf client if there is one. Every printed result was observed.
package cf

import (
	"context"
	"crypto/tls"
	_ "embed" // The manifest is a separate file, as an administrator would write it.
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

const (
	system, org, space = "torpor-system", "the-org", "dev"
	limit              = 2 * time.Minute
	// address is the host name of the app. curl and browsers resolve all names below localhost to this machine.
	address = "shop.apps.localhost"
	// gatewayName is the Gateway that the manager uses.
	gatewayName = "infra/apps"
	// versionLabel is the suffix of the label that contains a Pod's revision.
	versionLabel = "/version"
)

// Config is the configuration of the demo.
type Config struct {
	runner.Config

	// CF is the path of the cf client. It is empty if there is none.
	CF string
	// ConfigDir is the folder of the manifests, and GatewayAPI the folder of the Gateway API's module.
	ConfigDir, GatewayAPI string
}

type appDemo struct {
	*runner.Runner

	config Config
	// api is the CF API's address; tokens are its users' tokens, by user name.
	api  string
	http *http.Client
	// gateway is the address at which apps are served.
	gateway string
	// visitor is an anonymous client of the gateway.
	visitor *http.Client
	tokens  map[string]string
	// app is the GUID of the app.
	app string
}

// RunDemo runs all steps and then stops everything. It returns nil only if every expected result was observed.
func RunDemo(ctx context.Context, c Config) error {
	d, err := newAppDemo(ctx, c)
	if err != nil {
		return err
	}
	return d.RunDemo(runner.Demo{
		Steps: append(d.environmentSteps(), d.askAddress, d.restartApp,
			d.restartInOnePatch, d.rollApp, d.cancelDeployment, d.rollBack, d.refuseAuditor, d.useClient, d.deleteApp),
		Duration:      "two minutes",
		LastStep:      "Stop everything",
		VerifyCleanUp: func() { d.PrintObserved("every process that was started has ended") },
	})
}

func newAppDemo(ctx context.Context, c Config) (*appDemo, error) {
	r, err := runner.NewRunner(ctx, &c.Config, &c.ConfigDir)
	if err != nil {
		return nil, err
	}
	r.Kubeconfig = c.FilePath("hub", "admin.kubeconfig")
	return &appDemo{Runner: r, config: c, tokens: map[string]string{}}, nil
}

func (d *appDemo) environmentSteps() []func() {
	return []func(){d.EmptyDir, d.startControlPlane, d.grantRights, d.startGateway, d.startTorpor, d.pushApp, d.readLogs}
}

// KeepEnvironment builds the environment of the demo with an app in it, calls ready, and keeps it until ctx ends. It
// writes a file that exports the addresses and credentials to a developer's shell.
func KeepEnvironment(ctx context.Context, c Config, ready func()) error {
	d, err := newAppDemo(ctx, c)
	if err != nil {
		return err
	}
	if err = runner.RunSteps(append(d.environmentSteps(), d.writeEnvironment)...); err == nil {
		ready()
		<-ctx.Done()
	}
	return errors.Join(err, d.CleanUp())
}

func (d *appDemo) writeEnvironment() {
	c, err := clientcmd.LoadFromFile(d.writeKubeconfig("alice"))
	runner.ExpectNoError(err)
	c.Contexts[c.CurrentContext].Namespace = space
	kubeconfig := d.config.FilePath("alice.kubeconfig")
	runner.ExpectNoError(clientcmd.WriteToFile(*c, kubeconfig))
	text := fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH GATEWAY=%s CF_API=%s TOKEN=%s\n", kubeconfig, filepath.Dir(d.config.Local), d.gateway, d.api, d.tokens["alice"])
	runner.ExpectNoError(os.WriteFile(d.config.FilePath("env"), []byte(text), 0o600))
}

func (d *appDemo) kubectl(args ...string) string {
	return d.RunCommand(runner.CommandLine{Program: d.config.Kubectl, Args: args, Limit: limit})
}

// awaitObserved polls until an attempt succeeds, and prints what was observed.
func (d *appDemo) awaitObserved(what string, attempt func()) {
	d.Poll(what, limit, func(context.Context) { attempt() })
	d.PrintObserved("%s", what)
}

func expectThat(holds bool, found string) {
	if !holds {
		runner.FailStep("found %s", strings.TrimSpace(found))
	}
}

//go:embed people.yaml
var people string

func (d *appDemo) startControlPlane() {
	d.BeginStep("A real control plane, and a hollow node: its Pods have no containers, and the node answers in their place")
	d.StartProgram("hub", d.config.Local, "control-plane", "--dir", d.config.FilePath("hub"), "--approve-serving")
	d.Poll("the API server", limit, func(context.Context) { d.kubectl("get", "--raw", "/readyz") })
	d.StartProgram("node", d.config.Local, "node", "--name", "node-1", "--dir", d.config.FilePath("node"), "--bootstrap-kubeconfig", d.Kubeconfig,
		"--pod-network", d.podNetwork())
	d.awaitObserved("the node is ready", func() {
		out := d.kubectl("get", "nodes", "--no-headers")
		expectThat(strings.Contains(out, " Ready "), out)
	})
}

func (d *appDemo) grantRights() {
	d.BeginStep("An administrator installs the CRDs and grants access")
	runner.ExpectNoError(os.WriteFile(d.config.FilePath("people.yaml"), []byte(people), 0o600))
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(d.config.ConfigDir, "crd")},
		{"apply", "-f", d.config.FilePath("people.yaml")},
		{"apply", "-k", filepath.Join(d.config.ConfigDir, "rbac", "cf")},
		{"-n", space, "create", "rolebinding", "alice", "--clusterrole=torpor-space-developer", "--serviceaccount=" + system + ":alice"},
		{"-n", space, "create", "rolebinding", "bob", "--clusterrole=torpor-space-auditor", "--serviceaccount=" + system + ":bob"},
	} {
		d.kubectl(args...)
	}
	for _, name := range []string{"alice", "bob", "torpor-cf-api"} {
		d.tokens[name] = d.kubectl("-n", system, "create", "token", name)
	}
	d.PrintObserved("alice is a developer in the space %s, bob may only read", space)
}

// podNetwork is the folder of the Pods' sockets, as the shortest path, because the paths of sockets have a length
// limit.
func (d *appDemo) podNetwork() string {
	folder := d.config.FilePath("pods")
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, folder); err == nil && len(short) < len(folder) {
			return short
		}
	}
	return folder
}

func (d *appDemo) startGateway() {
	d.BeginStep("A gateway: a small one, in place of a production gateway, which never retries a request")
	d.kubectl("apply", "--server-side", "-f", filepath.Join(d.config.GatewayAPI, "config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml"))
	// kubectl cannot wait for a condition of a definition that has no conditions yet.
	d.kubectl("wait", "--for=jsonpath={.status.conditions}", "crd/httproutes.gateway.networking.k8s.io")
	d.kubectl("wait", "--for=condition=Established", "crd/httproutes.gateway.networking.k8s.io")
	p := d.StartProgram("gateway", d.config.Local, "gateway", "--kubeconfig", d.Kubeconfig, "--gateway", gatewayName, "--pod-network", d.podNetwork())
	d.gateway = d.AwaitLogLine(p, "address: ")
	d.visitor = newVisitor(d.gateway)
	d.PrintObserved("it serves HTTPRoutes of the Gateway %s at %s", gatewayName, d.gateway)
}

func (d *appDemo) startTorpor() {
	d.BeginStep("torpor manager, which counts revisions at admission, and torpor cf-api, which has read-only permissions")
	addresses := runner.ReserveAddresses(d.Context, 3)
	d.kubectl("apply", "-f", filepath.Join(d.config.ConfigDir, "webhook", "manifests.yaml"))
	// The webhooks are changed to call this machine, because the Service in the manifest has no Pods here.
	for kind, path := range map[string]string{"mutatingwebhookconfiguration": "/mutate-cfapps", "validatingwebhookconfiguration": "/validate-cfapps"} {
		patch := fmt.Sprintf(`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://%s%s"}]`, addresses[0], path)
		d.kubectl("patch", kind, "torpor", "--type=json", "-p", patch)
	}
	d.StartProgram("manager", d.config.Torpor, "manager", "--kubeconfig", d.Kubeconfig, "--namespace", system,
		"--metrics-address", "0", "--probe-address", addresses[2], "--webhook-address", addresses[0], "--route-gateway", gatewayName, "--image-registries", "none")
	own := d.writeKubeconfig("torpor-cf-api")
	d.StartProgram("cf-api", d.config.Torpor, "cf-api", "--kubeconfig", own, "--address", addresses[1], "--metrics-address", "0", "--tls-folder", d.config.Dir)
	d.api = "https://" + addresses[1]
	d.awaitObserved("the CF API answers at "+d.api, func() {
		pool, err := certutil.NewPool(d.config.FilePath("tls.crt"))
		runner.ExpectNoError(err)
		d.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
		d.sendRequest("", http.MethodGet, "/healthz", "")
	})
}

// writeKubeconfig writes a kubeconfig with a user's token, without admin permissions.
func (d *appDemo) writeKubeconfig(name string) string {
	c, err := clientcmd.LoadFromFile(d.Kubeconfig)
	runner.ExpectNoError(err)
	c.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: d.tokens[name]}}
	c.Contexts[c.CurrentContext].AuthInfo = name
	file := d.config.FilePath(name + ".kubeconfig")
	runner.ExpectNoError(clientcmd.WriteToFile(*c, file))
	return file
}

// pushApp sends the requests of `cf push` for a manifest.
func (d *appDemo) pushApp() {
	d.BeginStep("cf push shop, by a manifest with an image, two instances and the route " + address)
	manifest := "applications: [{name: shop, docker: {image: 'shop:1'}, instances: 2, memory: 64M, env: {COLOUR: red}, routes: [{route: " + address + "}]}]"
	d.requestAsAlice("POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest, http.StatusAccepted)
	found := d.requestAsAlice("GET", "/v3/apps?names=shop", "", http.StatusOK)
	d.app = stringAt(found, "resources", 0, "guid")
	expectThat(d.app != "", "no app shop")
	of := `"relationships":{"app":{"data":{"guid":"` + d.app + `"}}}`
	image := d.requestAsAlice("POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+of+`}`, http.StatusCreated)
	build := d.requestAsAlice("POST", "/v3/builds", `{"package":{"guid":"`+stringAt(image, "guid")+`"}}`, http.StatusCreated)
	build = d.requestAsAlice("GET", "/v3/builds/"+stringAt(build, "guid"), "", http.StatusOK)
	droplet := `{"data":{"guid":"` + stringAt(build, "droplet", "guid") + `"}}`
	d.requestAsAlice("PATCH", d.appPath("/relationships/current_droplet"), droplet, http.StatusOK)
	d.requestAsAlice("POST", d.appPath("/actions/restart"), "", http.StatusOK)
	d.awaitRevision("0")
}

// readLogs sends the requests of `cf logs shop --recent`.
func (d *appDemo) readLogs() {
	d.BeginStep("cf logs shop --recent")
	path := "/api/v1/read/" + d.app + "?descending=true&envelope_types=LOG&limit=1000"
	d.QuoteOutput(`curl --cacert tls.crt -H "Authorization: Bearer $TOKEN" '` + d.api + path + "'")
	d.awaitObserved("there are lines of each instance", func() {
		status, found := d.sendRequest("alice", http.MethodGet, path, "")
		expectThat(status == http.StatusOK, fmt.Sprintf("%d %s", status, found))
		seen := map[string]bool{}
		for i := 0; stringAt(found, "envelopes", "batch", i, "instance_id") != ""; i++ {
			seen[stringAt(found, "envelopes", "batch", i, "instance_id")] = true
		}
		expectThat(len(seen) == instances, found)
	})
}

func (d *appDemo) askAddress() {
	_, port, _ := strings.Cut(d.gateway, ":")
	d.BeginStep("The app's address")
	d.QuoteOutput("curl http://" + address + ":" + port + "/")
	d.awaitObserved("an instance of revision 0 answers", func() {
		revision, err := d.askApp(d.Context)
		runner.ExpectNoError(err)
		expectThat(revision == "0", "revision "+revision)
	})
}

// restartApp sends the requests of `cf restart shop`: a stop and a start, immediately after each other.
func (d *appDemo) restartApp() {
	d.BeginStep("cf restart shop under load: a stop and a start within milliseconds")
	found := d.withTraffic(func() {
		for _, action := range []string{"stop", "start"} {
			d.requestAsAlice("POST", d.appPath("/actions/"+action), "", http.StatusOK)
		}
		d.awaitRevision("1")
	})
	expectThat(len(found.refused) > 0, found.String())
	d.PrintObserved("%s, because two revisions never run together", found)
}

func (d *appDemo) restartInOnePatch() {
	d.BeginStep("actions/restart: one patch, the app stays STARTED")
	found := d.requestAsAlice("POST", d.appPath("/actions/restart"), "", http.StatusOK)
	state := stringAt(found, "state")
	expectThat(state == "STARTED", state)
	d.awaitRevision("2")
}

func (d *appDemo) rollApp() {
	d.BeginStep("cf set-env shop COLOUR blue, cf restart shop --strategy rolling, under load")
	d.requestAsAlice("PATCH", d.appPath("/environment_variables"), `{"var":{"COLOUR":"blue"}}`, http.StatusOK)
	d.expectAnswers(d.withTraffic(func() {
		d.awaitDeployment(d.createDeployment(""), "DEPLOYED")
		d.awaitRevision("3")
	}), "2", "3")
}

func (d *appDemo) cancelDeployment() {
	d.BeginStep("A deployment that never becomes ready is cancelled, under load")
	d.requestAsAlice("PATCH", d.appPath("/processes/web"), `{"command":"HOLLOW_START=1h ./shop"}`, http.StatusOK)
	d.expectAnswers(d.withTraffic(func() {
		path := d.createDeployment("")
		// The new instances take an hour to become ready, so the deployment stays in progress.
		d.awaitDeployment(path, "DEPLOYING")
		d.requestAsAlice("POST", path+"/actions/cancel", "", http.StatusOK)
		d.awaitDeployment(path, "CANCELED")
		d.awaitRevision("3")
	}), "3")
}

func (d *appDemo) rollBack() {
	d.BeginStep("cf rollback shop --version 2, under load")
	earlier := stringAt(d.requestAsAlice("GET", d.appPath("/revisions?versions=2"), "", http.StatusOK), "resources", 0, "guid")
	d.expectAnswers(d.withTraffic(func() {
		d.awaitDeployment(d.createDeployment(`"revision":{"guid":"`+earlier+`"},`), "DEPLOYED")
		d.awaitRevision("5")
	}), "3", "5")
	colour := stringAt(d.requestAsAlice("GET", d.appPath("/environment_variables"), "", http.StatusOK), "var", "COLOUR")
	expectThat(colour == "red", colour)
	d.PrintObserved("its environment is that of revision 2 again: COLOUR is %s", colour)
}

func (d *appDemo) refuseAuditor() {
	d.BeginStep("bob, with read-only access, is refused immediately")
	began := time.Now()
	status, body := d.sendRequest("bob", "POST", d.appPath("/actions/stop"), "")
	expectThat(status == http.StatusForbidden, body)
	d.PrintObserved("403 after %d ms: %s", time.Since(began).Milliseconds(), stringAt(body, "errors", 0, "detail"))
	d.awaitRevision("5")
}

func (d *appDemo) deleteApp() {
	d.BeginStep("cf delete shop -f -r")
	route := stringAt(d.requestAsAlice("GET", d.appPath("/routes"), "", http.StatusOK), "resources", 0, "guid")
	d.requestAsAlice("DELETE", "/v3/routes/"+route, "", http.StatusAccepted)
	d.requestAsAlice("DELETE", d.appPath(""), "", http.StatusAccepted)
	d.awaitObserved("no LRP, StatefulSet, Pod, Service or HTTPRoute is left", func() {
		out := d.kubectl("-n", space, "get", "cfapps,cfprocesses,cfroutes,lrps,statefulsets,pods,services,httproutes", "-o", "name")
		expectThat(out == "", out)
	})
	_, err := d.askApp(d.Context)
	expectThat(err != nil && strings.Contains(err.Error(), "404"), fmt.Sprint(err))
	d.PrintObserved("the address is not served: %v", err)
}

func (d *appDemo) appPath(path string) string { return "/v3/apps/" + d.app + path }

func (d *appDemo) createDeployment(more string) string {
	made := d.requestAsAlice("POST", "/v3/deployments", `{"strategy":"rolling",`+more+`"relationships":{"app":{"data":{"guid":"`+d.app+`"}}}}`, http.StatusCreated)
	return "/v3/deployments/" + stringAt(made, "guid")
}

func (d *appDemo) awaitDeployment(deployment, reason string) {
	d.awaitObserved("the deployment is "+reason, func() {
		_, body := d.sendRequest("alice", http.MethodGet, deployment, "")
		expectThat(stringAt(body, "status", "reason") == reason, body)
	})
}

// instances is the number of the app's instances.
const instances = 2

// awaitRevision waits until the stats show all instances as running, and all Pods have the given revision.
func (d *appDemo) awaitRevision(revision string) {
	d.awaitObserved(fmt.Sprintf("stats show %d of %d instances running", instances, instances), func() {
		_, body := d.sendRequest("alice", http.MethodGet, d.appPath("/processes/web/stats"), "")
		expectThat(strings.Count(body, `"RUNNING"`) == instances, body)
	})
	d.awaitObserved("all Pods are of revision "+revision, func() {
		out := d.kubectl("-n", space, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.labels}{"\n"}{end}`)
		all, of := len(strings.Fields(out)), strings.Count(out, versionLabel+`":"`+revision+`"`)
		expectThat(all == instances && of == instances, out)
	})
}

// useClient repeats the restarts with the cf client itself, if there is one.
func (d *appDemo) useClient() {
	if d.config.CF == "" {
		d.BeginStep("The cf client: not installed here")
		d.AddNote("expected cf, version 8 or 9, on the PATH or in CF_CLI; the other steps do not need it")
		return
	}
	d.BeginStep("The cf client itself")
	kubeconfig := d.writeKubeconfig("alice")
	env := []string{"CF_HOME=" + d.config.Dir, "KUBECONFIG=" + kubeconfig, "CF_COLOR=false", "LANG=C"}
	for _, command := range []struct{ line, prints string }{
		{"api " + d.api + " --skip-ssl-validation", ""},
		{"auth alice", ""},
		{"target -o " + org + " -s " + space, space},
		{"apps", "web:2/2"},
		{"restart shop", "#0   running"},
		{"restart shop --strategy rolling", "#1   running"},
	} {
		out := d.RunCommand(runner.CommandLine{Program: d.config.CF, Args: strings.Fields(command.line), Env: env, Limit: limit})
		expectThat(strings.Contains(out, command.prints), out)
		d.PrintObserved("cf %s", command.line)
	}
}

// requestAsAlice sends a request as alice, and prints the command that a user would type.
func (d *appDemo) requestAsAlice(method, path, body string, want int) string {
	line := `curl --cacert tls.crt -H "Authorization: Bearer $TOKEN"`
	if method != http.MethodGet {
		line += " -X " + method
	}
	if body != "" {
		line += " -d '" + strings.ReplaceAll(body, "'", `'\''`) + "'"
	}
	d.QuoteOutput(line + " '" + d.api + path + "'")
	status, found := d.sendRequest("alice", method, path, body)
	expectThat(status == want, fmt.Sprintf("%d %s, want %d", status, found, want))
	d.PrintObserved("%d %s", status, http.StatusText(status))
	return found
}

func (d *appDemo) sendRequest(as, method, path, body string) (status int, found string) {
	r, err := http.NewRequestWithContext(d.Context, method, d.api+path, strings.NewReader(body))
	runner.ExpectNoError(err)
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+d.tokens[as])
	}
	response, err := d.http.Do(r)
	runner.ExpectNoError(err)
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	runner.ExpectNoError(err)
	return response.StatusCode, string(raw)
}

// stringAt returns the string at a path in a JSON text, or an empty string if there is none.
func stringAt(body string, path ...any) string {
	var value any
	if json.Unmarshal([]byte(body), &value) != nil {
		return ""
	}
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			name, _ := step.(string)
			value = v[name]
		case []any:
			i, ok := step.(int)
			if !ok || i >= len(v) {
				return ""
			}
			value = v[i]
		}
	}
	text, _ := value.(string)
	return text
}
