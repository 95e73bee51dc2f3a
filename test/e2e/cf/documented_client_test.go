// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// documentedClient relies only on the CF v3 documentation: it follows links and jobs, and polls values that are
// documented to change.
type documentedClient struct {
	caller
	t     *testing.T
	space string
	app   string
}

// TestClientOfTheDocumentation performs a developer's actions on an app, from its push to its deletion.
func TestClientOfTheDocumentation(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	c := &documentedClient{caller: w.newCaller(t, "alice"), t: t, space: w.createSpace(t)}
	c.push()
	c.route()
	c.scale()
	c.runTasks()
	c.bind()
	c.deploy()
	c.cancelAndRollBack()
	c.delete()
}

// ask sends a request and returns the values at the given paths of the answer.
func (c *documentedClient) ask(want int, request, body string, paths ...string) []string {
	c.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	answer := c.expectStatus(c.t, want, method, strings.TrimPrefix(path, c.url), body)
	found := make([]string, len(paths))
	for i, p := range paths {
		found[i] = conversation.JSONField(c.t, answer, p)
	}
	return found
}

// poll repeats a request until a field of the answer has the wanted value.
func (c *documentedClient) poll(path, field, want string) {
	c.t.Helper()
	testenv.Eventually(c.t, path+" has "+field+"="+want, func() error {
		a, err := c.send(c.t.Context(), http.MethodGet, strings.TrimPrefix(path, c.url), "")
		if err != nil || a.Status != http.StatusOK {
			return fmt.Errorf("found %d %s (%w)", a.Status, a.Body, err)
		}
		found := conversation.JSONField(c.t, a.Body, field)
		return testenv.ErrorIf(found != want, "found %s", found)
	})
}

func (c *documentedClient) relationship(to, guid string) string {
	return `"relationships":{"` + to + `":{"data":{"guid":"` + guid + `"}}}`
}

func (c *documentedClient) push() {
	found := c.ask(http.StatusCreated, "POST /v3/apps", `{"name":"documented","lifecycle":{"type":"docker","data":{}},"environment_variables":{"COLOUR":"red"},`+c.relationship("space", c.space)+`}`, "guid", "state")
	c.app = found[0]
	pkg := c.ask(http.StatusCreated, "POST /v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+c.relationship("app", c.app)+`}`, "guid", "links.self.href")
	build := c.ask(http.StatusCreated, "POST /v3/builds", `{"package":{"guid":"`+pkg[0]+`"}}`, "links.self.href")
	c.poll(build[0], "state", "STAGED")
	droplet := c.ask(http.StatusOK, "GET "+build[0], "", "droplet.guid")
	c.ask(http.StatusOK, "PATCH /v3/apps/"+c.app+"/relationships/current_droplet", `{"data":{"guid":"`+droplet[0]+`"}}`)
	c.ask(http.StatusOK, "POST /v3/apps/"+c.app+"/actions/start", "")
	c.poll("/v3/apps/"+c.app+"/processes/web/stats", "resources.0.state", "RUNNING")
}

func (c *documentedClient) route() {
	domain := c.ask(http.StatusOK, "GET /v3/organizations/"+c.org+"/domains/default", "", "guid", "name")
	made := c.ask(http.StatusCreated, "POST /v3/routes", `{"host":"`+c.space+`","relationships":{"space":{"data":{"guid":"`+c.space+`"}},"domain":{"data":{"guid":"`+domain[0]+`"}}}}`,
		"links.self.href", "url")
	c.ask(http.StatusOK, "POST "+made[0]+"/destinations", `{"destinations":[{"app":{"guid":"`+c.app+`"}}]}`)
	env := c.ask(http.StatusOK, "GET /v3/apps/"+c.app+"/env", "", "application_env_json.VCAP_APPLICATION.application_uris.0", "environment_variables.COLOUR")
	if env[0] != made[1] || env[0] != c.space+"."+domain[1] || env[1] != "red" {
		c.t.Errorf("expected the environment to name the route %s, found %v", made[1], env)
	}
}

func (c *documentedClient) scale() {
	c.ask(http.StatusOK, "POST /v3/apps/"+c.app+"/processes/web/actions/scale", `{"instances":2}`)
	c.waitUntilRunning(c.t, c.app, 2)
}

func (c *documentedClient) runTasks() {
	task := c.ask(http.StatusCreated, "POST /v3/apps/"+c.app+"/tasks", `{"command":"HOLLOW_START=1h bin/migrate","name":"migrate","disk_in_mb":64,"memory_in_mb":64}`,
		"links.self.href", "links.cancel.href", "sequence_id")
	if task[2] != "1" {
		c.t.Errorf("expected the first task to be 1, found %s", task[2])
	}
	c.poll(task[0], "state", "RUNNING")
	c.ask(http.StatusAccepted, "POST "+task[1], "")
	c.poll(task[0], "state", "FAILED")
}

// bind binds the app to a user-provided service; instances get its credentials with the next revision.
func (c *documentedClient) bind() {
	service := c.ask(http.StatusCreated, "POST /v3/service_instances", `{"type":"user-provided","name":"db","credentials":{"uri":"mysql://db"},`+c.relationship("space", c.space)+`}`, "guid", "links.self.href")
	binding := c.ask(http.StatusCreated, "POST /v3/service_credential_bindings", `{"type":"app","relationships":{"app":{"data":{"guid":"`+c.app+`"}},"service_instance":{"data":{"guid":"`+service[0]+`"}}}}`, "links.self.href")
	c.poll(binding[0], "last_operation.state", "succeeded")
	c.poll("/v3/apps/"+c.app+"/env", "system_env_json.VCAP_SERVICES.user-provided.0.credentials.uri", "mysql://db")
	c.ask(http.StatusOK, "GET "+binding[0]+"/details", "", "credentials.uri")
}

func (c *documentedClient) createDeployment(more string) string {
	c.t.Helper()
	return c.ask(http.StatusCreated, "POST /v3/deployments", `{`+more+c.relationship("app", c.app)+`}`, "links.self.href")[0]
}

func (c *documentedClient) deploy() {
	c.ask(http.StatusOK, "PATCH /v3/apps/"+c.app+"/environment_variables", `{"var":{"COLOUR":"blue"}}`)
	c.poll(c.createDeployment(`"strategy":"rolling",`), "status.reason", "DEPLOYED")
}

func (c *documentedClient) cancelAndRollBack() {
	c.ask(http.StatusOK, "PATCH /v3/apps/"+c.app+"/processes/web", `{"command":"HOLLOW_START=1h bin/web"}`)
	broken := c.createDeployment("")
	c.poll(broken, "status.reason", "DEPLOYING")
	c.ask(http.StatusOK, "POST "+broken+"/actions/cancel", "")
	c.poll(broken, "status.reason", "CANCELED")
	c.waitUntilRunning(c.t, c.app, 2)
	oldest := c.ask(http.StatusOK, "GET /v3/apps/"+c.app+"/revisions?versions=0", "", "resources.0.guid")
	c.poll(c.createDeployment(`"revision":{"guid":"`+oldest[0]+`"},`), "status.reason", "DEPLOYED")
	if vars := c.ask(http.StatusOK, "GET /v3/apps/"+c.app+"/environment_variables", "", "var.COLOUR"); vars[0] != "red" {
		c.t.Errorf("expected the rollback to restore the environment, found %s", vars[0])
	}
	c.poll("/v3/audit_events?target_guids="+c.app+"&types=audit.app.deployment.create", "resources.0.actor.name", "system:serviceaccount:"+system+":alice")
}

func (c *documentedClient) delete() {
	a, err := c.send(c.t.Context(), http.MethodDelete, "/v3/apps/"+c.app, "")
	if err != nil || a.Status != http.StatusAccepted {
		c.t.Fatalf("found %+v (%v)", a, err)
	}
	c.poll(a.Location, "state", "COMPLETE")
	c.ask(http.StatusNotFound, "GET /v3/apps/"+c.app, "")
}

// TestClientDoesTheSame runs the same steps with the real client.
func TestClientDoesTheSame(t *testing.T) {
	binary := os.Getenv("CF_CLI")
	if binary == "" {
		t.Skip("CF_CLI is not set: expected the path of the cf client, version 8 or 9; TestClientOfTheDocumentation does the same without it")
	}
	w := shared.Get(t)
	space, dir := w.createSpace(t), t.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["hub"], kubeconfig.AuthInfos["alice"] = &w.toHub, &clientcmdapi.AuthInfo{Token: w.createToken(t, "alice")}
	kubeconfig.Contexts["hub"], kubeconfig.CurrentContext = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "alice"}, "hub"
	file := filepath.Join(dir, "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*kubeconfig, file))
	for _, step := range []struct{ command, says string }{
		{"api " + w.url + " --skip-ssl-validation", ""},
		{"auth alice", ""},
		{"target -o the-org -s dev-" + space, "dev-" + space},
		{"push documented --docker-image shop:1 -m 64M --no-route", "#0   running"},
		{"map-route documented example.com --hostname " + space, "OK"},
		{"routes", space},
		{"env documented", space + ".example.com"},
		{"scale documented -i 2", "#1   running"},
		{"run-task documented --command HOLLOW_START=1h --name migrate", "task id:"},
		{"tasks documented", "migrate"},
		{"terminate-task documented 1", "OK"},
		{"create-user-provided-service db-" + space + ` -p {"uri":"mysql://db"}`, "OK"},
		{"bind-service documented db-" + space, "OK"},
		{"env documented", "mysql://db"},
		{"restart documented --strategy rolling", "#1   running"},
		{"restart documented --strategy canary", "PAUSED"},
		{"cancel-deployment documented", "OK"},
		{"app documented", "#1   running"},
		{"restart documented --strategy canary", "PAUSED"},
		{"continue-deployment documented", "#1   running"},
		{"rollback documented --version 0 -f", "#1   running"},
		{"events documented", "audit.app.deployment.create"},
		{"create-route example.com --hostname o-" + space, "OK"},
		{"delete-orphaned-routes -f", "OK"},
		{"delete documented -f -r", "OK"},
		{"routes", "No routes found"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, binary, strings.Fields(step.command)...)
		cmd.Env = append(os.Environ(), "CF_HOME="+dir, "KUBECONFIG="+file, "CF_COLOR=false", "LANG=C")
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil || !strings.Contains(string(out), step.says) {
			t.Fatalf("cf %s: %v, expected %q in:\n%s", step.command, err, step.says, out)
		}
	}
}
