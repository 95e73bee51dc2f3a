// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// BuildVersion is what a program was built from.
type BuildVersion struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Date is that of the commit.
	Date string `json:"date"`
	Go   string `json:"go"`
}

// ReadBuildVersion returns what this program was built from. What is not known, for example outside of a repository, is
// "unknown".
func ReadBuildVersion() BuildVersion {
	v := BuildVersion{Version: "unknown", Commit: "unknown", Date: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(info.Main.Version, v.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		}
	}
	return v
}

func (v BuildVersion) userAgent() string { return "torpor/" + v.Version }

// buildInfoMetric is 1, with the version as labels.
func buildInfoMetric(v BuildVersion) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "torpor_build_info", Help: "1, with what the program was built from.",
		ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "go": v.Go},
	}, func() float64 { return 1 })
}
