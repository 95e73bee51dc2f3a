// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// upstreamFigures returns what Korifi's HEAD took on the same machine with the same kind of Pods, and what the issue asks for.
func upstreamFigures() map[string]string {
	return map[string]string{
		"stop_p50_seconds": "upstream 0.195", "start_p50_seconds": "upstream 0.435", "restart_p50_seconds": "upstream 0.665",
		"overlap_seconds_strict": "target 0", "list_apps_5000_p99_seconds": "target < 0.1", "refusal_p99_seconds": "target < 0.05, upstream 2.6",
	}
}

// saveFigures prints the figures and writes them where TORPOR_BENCH_DIR says.
func saveFigures(t *testing.T, figures map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		t.Logf("%-28s %8.3f   %s", name, figures[name], upstreamFigures()[name])
	}
	dir := os.Getenv("TORPOR_BENCH_DIR")
	if dir == "" {
		return
	}
	raw, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const folder, file = 0o755, 0o644
	if err := os.MkdirAll(dir, folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "restart.json"), append(raw, '\n'), file); err != nil {
		t.Fatal(err)
	}
}

// quantile of some runs, in seconds: the smallest that a share of them does not exceed.
func quantile(runs []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(runs))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)].Seconds()
}
