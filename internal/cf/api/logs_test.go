// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeKubelet serves the logs of Pods to the API server.
type fakeKubelet struct {
	// lines maps each Pod to its log lines, oldest first. A Pod without lines has not started.
	lines map[string][]logEntry
}

type logEntry struct {
	at   time.Time
	text string
}

func (k *fakeKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lines, ok := k.lines[r.PathValue("pod")]
	if !ok {
		http.Error(w, "container is waiting to start", http.StatusBadRequest)
		return
	}
	q := r.URL.Query()
	since, _ := time.Parse(time.RFC3339, q.Get("sinceTime"))
	var kept []string
	for _, l := range lines {
		if !l.at.Before(since) {
			kept = append(kept, l.at.UTC().Format(time.RFC3339Nano)+" "+l.text)
		}
	}
	if n, err := strconv.Atoi(q.Get("tailLines")); err == nil {
		kept = kept[max(0, len(kept)-n):]
	}
	for _, line := range kept {
		_, _ = fmt.Fprintln(w, line)
	}
}

func TestLogsOfPods(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 3, started)
	another := e.createApp(t, space, "stall", 1, started)
	k := &fakeKubelet{lines: map[string][]logEntry{}}
	node := e.StartKubelet(t, k)
	begin := time.Date(2026, 11, 20, 12, 0, 0, 5, time.UTC)
	says := func(pod, who string, after time.Duration) {
		for second := range 5 {
			at := begin.Add(time.Duration(second)*time.Second + after)
			k.lines[pod] = append(k.lines[pod], logEntry{at, fmt.Sprintf("%s says %d", who, second)})
		}
	}
	says(e.createPodOn(t, node, space, app, "0"), "shop 0", 0)
	says(e.createPodOn(t, node, space, app, "1"), "shop 1", time.Millisecond)
	e.createPodOn(t, node, space, app, "2")
	says(e.createPodOn(t, node, space, another, "0"), "stall", 0)
	alice := e.callerNamed(t, "alice")
	read := func(query string) []string {
		t.Helper()
		a := alice.get(t, "/api/v1/read/"+app+query)
		if a.status != http.StatusOK {
			t.Fatalf("%s: found %d %s", query, a.status, a.body)
		}
		var all []string
		count, _ := strconv.Atoi(a.field(t, "envelopes.batch#"))
		for i := range count {
			text, err := base64.StdEncoding.DecodeString(a.field(t, fmt.Sprintf("envelopes.batch.%d.log.payload", i)))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
		return all
	}
	at := func(second int) string {
		return strconv.FormatInt(begin.Add(time.Duration(second)*time.Second).UnixNano(), 10)
	}
	for name, test := range map[string]struct{ query, want string }{
		"a limit in descending order returns the last lines":                           {"?descending=true&envelope_types=LOG&limit=3&start_time=-6795364578871345152", "shop 1 says 4|shop 0 says 4|shop 1 says 3"},
		"a limit returns the first lines":                                              {"?limit=3", "shop 0 says 0|shop 1 says 0|shop 0 says 1"},
		"a start time is compared with nanosecond precision":                           {"?limit=2&start_time=" + at(3), "shop 0 says 3|shop 1 says 3"},
		"a start time after the last line returns no lines":                            {"?start_time=" + strconv.FormatInt(begin.Add(4*time.Second+time.Millisecond+1).UnixNano(), 10), ""},
		"a start and an end time return the lines between them":                        {"?start_time=" + at(1) + "&end_time=" + at(2), "shop 0 says 1|shop 1 says 1"},
		"a limit of one in descending order returns the last line before the end time": {"?descending=true&limit=1&end_time=" + at(2), "shop 1 says 1"},
		"an envelope type other than LOG returns no lines":                             {"?envelope_types=COUNTER", ""},
		"a limit below one is treated as one":                                          {"?limit=0", "shop 0 says 0"},
		"a limit above the number of lines returns all lines":                          {"?limit=1000", strings.Join(allLogLines(), "|")},
		"a limit above the maximum returns all lines":                                  {"?limit=999999", strings.Join(allLogLines(), "|")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(read(test.query), "|"); got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
	a := alice.get(t, "/api/v1/read/"+app+"?limit=1")
	for path, want := range map[string]string{
		"timestamp": at(0), "source_id": app, "instance_id": "0", "log.type": "OUT", "tags.source_type": "APP/PROC/WEB", "tags.process_type": "web",
	} {
		if got := a.field(t, "envelopes.batch.0."+path); got != want {
			t.Errorf("%s: found %q, want %q", path, got, want)
		}
	}
	for name, want := range map[string]int{"bob": http.StatusOK, "mallory": http.StatusNotFound} {
		if a := e.callerNamed(t, name).get(t, "/api/v1/read/"+app); a.status != want {
			t.Errorf("%s: expected %d, found %d %s", name, want, a.status, a.body)
		}
	}
}

// TestLatestLogsAwaitTheOwnStart reads the latest lines of an app right after its restart, as the user who restarted it
// and as another user. A client that follows the logs does not wait.
func TestLatestLogsAwaitTheOwnStart(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, started)
	alice, bob := e.callerNamed(t, "alice"), e.callerNamed(t, "bob")
	k := &fakeKubelet{lines: map[string][]logEntry{}}
	e.controllers.setIdle(app, true)
	defer e.controllers.setIdle(app, false)
	alice.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/restart", "")
	path := "/api/v1/read/" + app
	answers := alice.getLater(t, path+"?descending=true&limit=10")
	bob.expect(t, http.StatusOK, "GET "+path, "", "envelopes.batch#=0")
	alice.expect(t, http.StatusOK, "GET "+path+"?start_time=1", "", "envelopes.batch#=0")
	k.lines[e.createPodOn(t, e.StartKubelet(t, k), space, app, "0")] = []logEntry{{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), "it runs"}}
	e.controllers.setIdle(app, false)
	if r := <-answers; r.field(t, "envelopes.batch#") != "1" {
		t.Errorf("found %s, want the response held until the app runs", r.body)
	}
}

func allLogLines() []string {
	var all []string
	for second := range 5 {
		for index := range 2 {
			all = append(all, fmt.Sprintf("shop %d says %d", index, second))
		}
	}
	return all
}
