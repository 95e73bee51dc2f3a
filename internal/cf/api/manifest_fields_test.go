// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// manifestFields returns all manifest fields of Cloud Controller, and an unknown field. Each field is either in the
// manifest of the resulting app, reported in a warning, or refused.
func manifestFields() map[string]struct{ yaml, shown, warned, refused string } {
	const ready = "ready when its health check has succeeded once"
	return map[string]struct{ yaml, shown, warned, refused string }{
		"buildpack":       {yaml: `buildpack: java`, warned: "use buildpacks instead"},
		"buildpacks":      {yaml: `buildpacks: [java]`, warned: "no code is built"},
		"cnb-credentials": {yaml: `cnb-credentials: {registry.example: {username: u, password: of-a-tenant}}`, warned: "the builder has its own"},
		"command":         {yaml: `command: ./shop`, shown: "command: ./shop"},
		"default-route":   {yaml: `default-route: true`, shown: "route: "},
		"disk-quota":      {yaml: `disk-quota: 2G`, shown: "disk-quota: 2048M"},
		"disk_quota":      {yaml: `disk_quota: 3G`, shown: "disk-quota: 3072M"},
		"docker":          {yaml: ``, shown: "name: "}, // The manifest of each row has this field. The client creates the package.
		"env":             {yaml: `env: {A: b}`, shown: "A: b"},
		"env with a variable that the platform sets": {yaml: `env: {PORT: "1"}`, refused: "expected no reserved names under env"},
		"features":                              {yaml: `features: {ssh: true}`, warned: "the features of an app cannot be changed"},
		"health-check-http-endpoint":            {yaml: `{health-check-type: http, health-check-http-endpoint: /up}`, shown: "health-check-http-endpoint: /up"},
		"health-check-interval":                 {yaml: `health-check-interval: 5`, warned: "checked every second"},
		"health-check-invocation-timeout":       {yaml: `{health-check-type: port, health-check-invocation-timeout: 7}`, shown: "health-check-invocation-timeout: 7"},
		"health-check-type":                     {yaml: `health-check-type: process`, shown: "health-check-type: process"},
		"instances":                             {yaml: `instances: 3`, shown: "instances: 3"},
		"lifecycle for cloud native buildpacks": {yaml: `lifecycle: cnb`, warned: "an app with docker.image has the lifecycle docker"},
		"lifecycle":                             {yaml: `lifecycle: docker`, shown: "name: "},
		"log-rate-limit-per-second":             {yaml: `log-rate-limit-per-second: 1K`, warned: "no limit is enforced"},
		"memory":                                {yaml: `memory: 77M`, shown: "memory: 77M"},
		"metadata":                              {yaml: `metadata: {labels: {team: red}, annotations: {note: x}}`, shown: "team: red"},
		"no-route":                              {yaml: `no-route: true`, shown: "name: "},
		"path":                                  {yaml: `path: ./of/the/client`, shown: "name: "},
		"ports":                                 {yaml: `ports: [3000]`, shown: "- 3000"},
		"processes":                             {yaml: `processes: [{type: worker, instances: 2}]`, shown: "type: worker"},
		"processes[].log-rate-limit-per-second": {yaml: `processes: [{type: worker, log-rate-limit-per-second: 1K}]`, warned: "no limit is enforced"},
		"processes[].readiness-health-check-type":   {yaml: `processes: [{type: worker, readiness-health-check-type: port}]`, warned: ready},
		"processes[].user":                          {yaml: `processes: [{type: worker, user: root}]`, warned: "run as the user of the image"},
		"processes[].something-new":                 {yaml: `processes: [{type: worker, something-new: 1}]`, warned: `"something-new" of the manifest, which is unknown to Torpor, had no effect`},
		"random-route":                              {yaml: `random-route: true`, shown: "route: "},
		"readiness-health-check-http-endpoint":      {yaml: `readiness-health-check-http-endpoint: /ready`, warned: ready},
		"readiness-health-check-interval":           {yaml: `readiness-health-check-interval: 5`, warned: ready},
		"readiness-health-check-invocation-timeout": {yaml: `readiness-health-check-invocation-timeout: 5`, warned: ready},
		"readiness-health-check-type":               {yaml: `readiness-health-check-type: port`, warned: ready},
		"routes[].options":                          {yaml: `routes: [{route: SPACE-options.example.com, options: {loadbalancing: least-connection}}]`, warned: "requests are distributed in proportion to instances"},
		"routes[].protocol":                         {yaml: `routes: [{route: SPACE-protocol.example.com, protocol: http2}]`, refused: "expected the protocol http1"},
		"routes[].route":                            {yaml: `routes: [{route: SPACE-fields.example.com}]`, shown: "route: SPACE-fields.example.com"},
		"services":                                  {yaml: `services: [fields-db]`, shown: "- fields-db"},
		"services[].binding_name":                   {yaml: `services: [{name: fields-db, binding_name: main}]`, shown: "- fields-db"},
		"services[].parameters":                     {yaml: `services: [{name: fields-db, parameters: {a: b}}]`, refused: "expected no parameters"},
		"sidecars":                                  {yaml: `sidecars: [{name: s, process_types: [web], command: ./s, memory: 16M}]`, warned: "run each sidecar as a process of the app"},
		"something-new":                             {yaml: `something-new: [1]`, warned: `"something-new" of the manifest, which is unknown to Torpor, had no effect`},
		"stack":                                     {yaml: `stack: cflinuxfs4`, warned: "no code is built"},
		"timeout":                                   {yaml: `{health-check-type: port, timeout: 90}`, shown: "timeout: 90"},
		"user":                                      {yaml: `user: root`, warned: "run as the user of the image"},
	}
}

// No manifest field is silently ignored.
func TestEveryManifestFieldIsAppliedOrReported(t *testing.T) {
	e := shared.Get(t)
	space, alice := e.createSpace(t), e.callerNamed(t, "alice")
	alice.expect(t, http.StatusCreated, "POST /v3/service_instances", `{"type":"user-provided","name":"fields-db","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`)
	rows, number := manifestFields(), 0
	for name, row := range rows {
		// A host belongs to the space that first uses it, even after the test, so each space needs its own host.
		row.yaml, row.shown = strings.ReplaceAll(row.yaml, "SPACE", space), strings.ReplaceAll(row.shown, "SPACE", space)
		number++
		app := "field-" + strconv.Itoa(number)
		t.Run(name, func(t *testing.T) {
			fields := row.yaml
			if !strings.HasPrefix(fields, "{") {
				fields = "{" + fields + "}"
			}
			manifest := "fields: &fields " + fields + "\napplications: [{name: " + app + ", docker: {image: 'shop:1'}, <<: *fields}]"
			r := alice.send(t, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest)
			if row.refused != "" {
				if r.status != http.StatusUnprocessableEntity || !strings.Contains(r.field(t, "errors.0.detail"), row.refused) {
					t.Errorf("expected 422 and %q, found %d %s", row.refused, r.status, r.body)
				}
				return
			}
			if r.status != http.StatusAccepted {
				t.Fatalf("found %d %s", r.status, r.body)
			}
			warnings, err := url.QueryUnescape(strings.Join(r.header.Values("X-Cf-Warnings"), "\n"))
			isTold := strings.Contains(warnings, row.warned) && (row.warned != "" || warnings == "")
			if err != nil || !isTold || strings.Contains(warnings, "of-a-tenant") {
				t.Errorf("expected the warning %q and no more, found %q (%v)", row.warned, warnings, err)
			}
			guid := alice.get(t, "/v3/apps?space_guids="+space+"&names="+app).field(t, "resources.0.guid")
			if shown := alice.get(t, "/v3/apps/"+guid+"/manifest").body; !strings.Contains(shown, row.shown) {
				t.Errorf("expected the app's manifest to have %q, found\n%s", row.shown, shown)
			}
		})
	}
}
