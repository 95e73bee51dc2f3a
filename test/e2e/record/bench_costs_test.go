// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// costs contains the CPU time and the requests of programs since a point in time.
type costs struct {
	hub, manager time.Duration
	// writes are counted by resource and verb; conflicts are the writes that were refused because of a conflict.
	writes    map[string]int
	conflicts int
}

// readCosts returns the costs of the API server, which includes etcd, and of a manager since their starts.
func (h *managedHub) readCosts(t *testing.T, manager *testenv.Process) costs {
	t.Helper()
	is := costs{hub: testenv.ReadProcessorTime(t, h.PID()), manager: testenv.ReadProcessorTime(t, manager.PID()), writes: map[string]int{}}
	counter := regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for line := range strings.Lines(h.readMetrics(t)) {
		found := counter.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		labels := map[string]string{}
		for _, one := range label.FindAllStringSubmatch(found[1], -1) {
			labels[one[1]] = one[2]
		}
		if !slices.Contains([]string{"APPLY", "DELETE", "PATCH", "POST", "PUT"}, labels["verb"]) || labels["resource"] == "leases" {
			continue
		}
		count, err := strconv.ParseFloat(found[2], 64)
		testenv.ExpectNoError(t, err)
		is.writes[strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")+" "+labels["verb"]] += int(count)
		if labels["code"] == strconv.Itoa(http.StatusConflict) {
			is.conflicts += int(count)
		}
	}
	return is
}

// note adds the difference from the earlier costs to the figures, and logs the writes.
func (c costs) note(t *testing.T, before costs, until string, figures map[string]float64) {
	t.Helper()
	total := 0
	for _, of := range slices.Sorted(maps.Keys(c.writes)) {
		if n := c.writes[of] - before.writes[of]; n > 0 {
			t.Logf("%s: %5d %s", until, n, of)
			total += n
		}
	}
	figures["until_1000_"+until+"_writes"], figures["until_1000_"+until+"_conflicts"] = float64(total), float64(c.conflicts-before.conflicts)
	figures["until_1000_"+until+"_hub_cpu_seconds"] = (c.hub - before.hub).Seconds()
	figures["until_1000_"+until+"_manager_cpu_seconds"] = (c.manager - before.manager).Seconds()
}

func (h *managedHub) readMetrics(t *testing.T) string {
	t.Helper()
	web, err := rest.HTTPClientFor(h.Config)
	testenv.ExpectNoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.Config.Host+"/metrics", http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := web.Do(request)
	testenv.ExpectNoError(t, err)
	text, err := io.ReadAll(bufio.NewReader(answer.Body))
	testenv.ExpectNoError(t, errors.Join(err, answer.Body.Close()))
	return string(text)
}
