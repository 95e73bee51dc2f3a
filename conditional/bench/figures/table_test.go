// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	rows := []Row{
		{What: "start", Unit: Seconds, Ours: []string{"start_p50_seconds", "start_p99_seconds"}, Plain: []string{"plain_start_p50_seconds"}, Limits: []float64{0.005, 0.015}},
		{What: "storm", Unit: Seconds, Ours: []string{"storm_seconds"}, Limits: []float64{10}},
		{What: "heap", Unit: Bytes, Ours: []string{"heap"}, Limits: []float64{100 << 10}},
		{What: "goroutines", Unit: Count, Ours: []string{"goroutines"}, Limits: []float64{0}},
		{What: "a fall", Unit: Bytes, Ours: []string{"fall"}, Limits: []float64{100}},
		{What: "CPU", Unit: Milliseconds, Ours: []string{"cpu"}},
		{What: "left out", Unit: Count, Ours: []string{"unmeasured"}, Limits: []float64{0}},
	}
	flat := map[string]float64{
		"start_p50_seconds": 0.004321, "start_p99_seconds": 0.016, "plain_start_p50_seconds": 0.203,
		"storm_seconds": 9.987, "heap": 515 << 10, "goroutines": 0, "fall": -12.5, "cpu": 1.88,
	}
	want := strings.TrimLeft(`
what        ours (p50 / p99 / max)  plain controller-runtime  target          met
start       4.32 ms / 16 ms         203 ms                    ≤ 5 ms / 15 ms  MISSED
storm       9.99 s                  -                         ≤ 10 s          yes
heap        515 KiB                 -                         ≤ 100 KiB       MISSED
goroutines  0                       -                         ≤ 0             yes
a fall      -12.5 B                 -                         ≤ 100 B         yes
CPU         1.88 ms                 -                         -               -
`, "\n")
	var got strings.Builder
	if err := Print(&got, rows, flat); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("wrong table (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"start", "heap"}, Missed(rows, flat)); diff != "" {
		t.Errorf("wrong rows are missed (-want +got):\n%s", diff)
	}
}
