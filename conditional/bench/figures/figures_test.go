// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundsBecomeOneNumberEach(t *testing.T) {
	f := Figures{}
	for _, samples := range [][]float64{{1, 2, 30}, {1, 3, 10}, {1, 4, 20}} {
		r := Round{"rounds": 1}
		r.Spread("start", samples)
		r.Spread("never", nil)
		f.Add(r)
	}
	file := filepath.Join(t.TempDir(), "new", "figures.json")
	if err := f.Save(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]float64
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"rounds": 1, "start_p50_seconds": 3, "start_p99_seconds": 20, "start_max_seconds": 30}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong figures (-want +got):\n%s", diff)
	}
}
