// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

const dashboardFile = "../../../../config/monitoring/dashboard.json"

// gridColumns is the width of a Grafana dashboard.
const gridColumns = 24

// dashboardPanel has the fields without which Grafana shows no panel.
type dashboardPanel struct {
	ID         int               `json:"id"`
	Type       string            `json:"type"`
	Title      string            `json:"title"`
	Datasource map[string]string `json:"datasource"`
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		Expr       string            `json:"expr"`
		RefID      string            `json:"refId"`
		Datasource map[string]string `json:"datasource"`
	} `json:"targets"`
}

// TestEveryPanelCanBeShown parses the dashboard as Grafana does, and its expressions as Prometheus does.
func TestEveryPanelCanBeShown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID           string           `json:"uid"`
		Title         string           `json:"title"`
		SchemaVersion int              `json:"schemaVersion"`
		Panels        []dashboardPanel `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" || dashboard.SchemaVersion == 0 || len(dashboard.Panels) == 0 {
		t.Errorf("expected a dashboard with a name, a version of its schema and panels, found %q", dashboard.Title)
	}
	taken, ids := map[[2]int]string{}, map[int]string{}
	for _, p := range dashboard.Panels {
		if p.Type == "" || p.Title == "" || p.Datasource["uid"] != "${datasource}" || ids[p.ID] != "" || len(p.Targets) == 0 {
			t.Errorf("%q: expected a type, an id of its own, the data source of the dashboard and an expression, found %+v", p.Title, p)
		}
		ids[p.ID] = p.Title
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(target.Expr); err != nil || target.RefID == "" || refs[target.RefID] {
				t.Errorf("%q: expected an expression with a name of its own, found %q called %q: %v", p.Title, target.Expr, target.RefID, err)
			}
			refs[target.RefID] = true
		}
		if p.GridPos.W == 0 || p.GridPos.H == 0 || p.GridPos.X+p.GridPos.W > gridColumns {
			t.Errorf("%q: expected a place in %d columns, found %+v", p.Title, gridColumns, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%q lies on %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
