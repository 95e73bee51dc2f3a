// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// push is what `cf push shop --docker-image shop:1 -i 2` sends.
func (p *play) push() error {
	p.story.Step("cf push shop --docker-image shop:1 -i 2")
	manifest := "applications: [{name: shop, docker: {image: 'shop:1'}, instances: 2, memory: 64M}]"
	if _, err := p.curl("POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest, http.StatusAccepted); err != nil {
		return err
	}
	found, err := p.curl("GET", "/v3/apps?names=shop", "", http.StatusOK)
	if err != nil {
		return err
	}
	if p.app = at(found, "resources", 0, "guid"); p.app == "" {
		return expect(nil, false, "no app shop")
	}
	of := `"relationships":{"app":{"data":{"guid":"` + p.app + `"}}}`
	image, err := p.curl("POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+of+`}`, http.StatusCreated)
	if err != nil {
		return err
	}
	build, err := p.curl("POST", "/v3/builds", `{"package":{"guid":"`+at(image, "guid")+`"}}`, http.StatusCreated)
	if err != nil {
		return err
	}
	if build, err = p.curl("GET", "/v3/builds/"+at(build, "guid"), "", http.StatusOK); err != nil {
		return err
	}
	droplet := `{"data":{"guid":"` + at(build, "droplet", "guid") + `"}}`
	if _, err = p.curl("PATCH", "/v3/apps/"+p.app+"/relationships/current_droplet", droplet, http.StatusOK); err != nil {
		return err
	}
	if _, err = p.curl("POST", p.of("/actions/restart"), "", http.StatusOK); err != nil {
		return err
	}
	return p.runs("0")
}

// restart is what `cf restart shop` sends: a stop and a start, with nothing between them.
func (p *play) restart() error {
	p.story.Step("cf restart shop: a stop and a start within milliseconds")
	for _, action := range []string{"stop", "start"} {
		if _, err := p.curl("POST", p.of("/actions/"+action), "", http.StatusOK); err != nil {
			return err
		}
	}
	return p.runs("1")
}

func (p *play) atomic() error {
	p.story.Step("actions/restart: one patch, which never leaves STARTED")
	found, err := p.curl("POST", p.of("/actions/restart"), "", http.StatusOK)
	if err != nil {
		return err
	}
	if state := at(found, "state"); state != "STARTED" {
		return expect(nil, false, state)
	}
	return p.runs("2")
}

func (p *play) rolling() error {
	p.story.Step("cf restart shop --strategy rolling: the new revision beside the old one")
	path, err := p.deploy()
	if err != nil {
		return err
	}
	if err := p.becomes(path, "DEPLOYED"); err != nil {
		return err
	}
	return p.runs("3")
}

func (p *play) cancel() error {
	p.story.Step("A deployment that never gets ready is cancelled")
	if _, err := p.curl("PATCH", p.of("/processes/web"), `{"command":"HOLLOW_START=1h ./shop"}`, http.StatusOK); err != nil {
		return err
	}
	path, err := p.deploy()
	if err != nil {
		return err
	}
	if err := p.becomes(path, "DEPLOYING"); err != nil {
		return err
	}
	if _, err := p.curl("POST", path+"/actions/cancel", "", http.StatusOK); err != nil {
		return err
	}
	if err := p.becomes(path, "CANCELED"); err != nil {
		return err
	}
	if err := p.runs("3"); err != nil {
		return err
	}
	_, err = p.curl("PATCH", p.of("/processes/web"), `{"command":""}`, http.StatusOK)
	return err
}

func (p *play) refused() error {
	p.story.Step("bob, who may only look, is refused at once")
	began := time.Now()
	status, body, err := p.send("bob", "POST", p.of("/actions/stop"), "")
	if err := expect(err, status == http.StatusForbidden, body); err != nil {
		return err
	}
	p.story.Saw("403 after %d ms: %s", time.Since(began).Milliseconds(), at(body, "errors", 0, "detail"))
	return p.runs("3")
}

func (p *play) remove() error {
	p.story.Step("cf delete shop -f")
	if _, err := p.curl("DELETE", p.of(""), "", http.StatusAccepted); err != nil {
		return err
	}
	return p.await("no LRP, StatefulSet or Pod is left", func() error {
		out, err := p.kubectl("-n", space, "get", "cfapps,cfprocesses,lrps,statefulsets,pods", "-o", "name")
		return expect(err, strings.TrimSpace(out) == "", out)
	})
}

func (p *play) of(path string) string { return "/v3/apps/" + p.app + path }

func (p *play) deploy() (string, error) {
	made, err := p.curl("POST", "/v3/deployments", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"`+p.app+`"}}}}`, http.StatusCreated)
	return "/v3/deployments/" + at(made, "guid"), err
}

func (p *play) becomes(deployment, reason string) error {
	return p.await("the deployment is "+reason, func() error {
		_, body, err := p.send("alice", http.MethodGet, deployment, "")
		return expect(err, at(body, "status", "reason") == reason, body)
	})
}

// instances is how many the app in the story has.
const instances = 2

// runs waits until stats say that all instances run, and the cluster that all Pods are of one revision.
func (p *play) runs(revision string) error {
	err := p.await(fmt.Sprintf("stats say that %d of %d instances run", instances, instances), func() error {
		_, body, err := p.send("alice", http.MethodGet, p.of("/processes/web/stats"), "")
		return expect(err, strings.Count(body, `"RUNNING"`) == instances, body)
	})
	if err != nil {
		return err
	}
	return p.await("all Pods are of revision "+revision, func() error {
		out, err := p.kubectl("-n", space, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.labels}{"\n"}{end}`)
		all, of := strings.Count(out, "\n"), strings.Count(out, `/version":"`+revision+`"`)
		return expect(err, all == instances && of == instances, out)
	})
}

// curl sends a request as alice, and shows what a person would type.
func (p *play) curl(method, path, body string, want int) (string, error) {
	line := `curl --cacert tls.crt -H "Authorization: Bearer $TOKEN"`
	if method != http.MethodGet {
		line += " -X " + method
	}
	if body != "" {
		line += " -d '" + strings.ReplaceAll(body, "'", `'\''`) + "'"
	}
	p.story.Quote(line + " '" + p.api + path + "'")
	status, found, err := p.send("alice", method, path, body)
	if err := expect(err, status == want, fmt.Sprintf("%d %s, want %d", status, found, want)); err != nil {
		return "", err
	}
	p.story.Saw("%d %s", status, http.StatusText(status))
	return found, nil
}

func (p *play) send(as, method, path, body string) (status int, found string, err error) {
	r, err := http.NewRequestWithContext(p.ctx, method, p.api+path, strings.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+p.tokens[as])
	}
	response, err := p.http.Do(r)
	if err != nil {
		return 0, "", fmt.Errorf("ask the CF API: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	return response.StatusCode, string(raw), nil
}

// at is a string in some JSON by its path; empty if there is none.
func at(body string, path ...any) string {
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
