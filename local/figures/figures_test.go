// SPDX-License-Identifier: Apache-2.0

package figures

import "testing"

func TestPercentile(t *testing.T) {
	f := Figures{}
	for i := range 20 {
		f.AddValue("twenty", float64(20-i))
	}
	f.AddValue("one", 7)
	for _, row := range []struct {
		name        string
		share, want float64
	}{{"twenty", 0.95, 19}, {"twenty", 1, 20}, {"twenty", 0, 1}, {"one", 0.95, 7}} {
		if got := f.Percentile(row.name, row.share); got != row.want {
			t.Errorf("%v of %s: %v, want %v", row.share, row.name, got, row.want)
		}
	}
}
