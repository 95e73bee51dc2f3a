// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	rulesFile     = "config/monitoring/rules.yaml"
	dashboardFile = "config/monitoring/dashboard.json"
	runbooksPage  = "docs/runbooks.md"
)

// A rule about a metric that does not exist never fires.
func TestRulesAndDashboardsUseExistingMetrics(t *testing.T) {
	reference := readFile(t, referencePage)
	for _, file := range []string{rulesFile, dashboardFile} {
		found := regexp.MustCompile(`\b(?:torpor|moco)_[a-z_]+[a-z]`).FindAllString(readFile(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s: expected metrics, found none", file)
		}
		slices.Sort(found)
		for _, name := range slices.Compact(found) {
			isHistogram := strings.Contains(reference, "| `"+strings.TrimSuffix(name, "_bucket")+"` |")
			if !isHistogram && !strings.Contains(reference, "| `"+name+"` |") {
				t.Errorf("%s: expected a metric of %s, found %s", file, referencePage, name)
			}
		}
	}
}

// Every alert links to a runbook.
func TestAlertsHaveRunbooks(t *testing.T) {
	var alerts, links, headings []string
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(readFile(t, rulesFile), -1) {
		alerts = append(alerts, m[1])
	}
	for _, m := range regexp.MustCompile(`runbook_url: \S+/docs/runbooks\.md#(\w+)`).FindAllStringSubmatch(readFile(t, rulesFile), -1) {
		links = append(links, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Torpor\w+)$`).FindAllStringSubmatch(readFile(t, runbooksPage), -1) {
		headings = append(headings, m[1])
	}
	anchors := make([]string, len(alerts))
	for i, alert := range alerts {
		anchors[i] = strings.ToLower(alert)
	}
	if len(alerts) == 0 || !slices.Equal(anchors, links) {
		t.Errorf("%s: expected each alert to link to its runbook, found the alerts %q and the links %q", rulesFile, alerts, links)
	}
	slices.Sort(alerts)
	slices.Sort(headings)
	if !slices.Equal(alerts, headings) {
		t.Errorf("%s: expected a section of each alert, %q, found %q", runbooksPage, alerts, headings)
	}
}
