// SPDX-License-Identifier: Apache-2.0

// Package buildinfo reports the version from which a program was built: to users, in the User-Agent of its requests,
// and as a metric.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// BuildVersion is the version from which a program was built.
type BuildVersion struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Date is the date of the commit.
	Date string `json:"date"`
	Go   string `json:"go"`
}

// ReadVersion returns the version from which this program was built. Unknown parts, for example in a build outside of a
// repository, are "unknown".
func ReadVersion() BuildVersion {
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

// UserAgent returns the User-Agent for a program's requests. Kubernetes uses the part before the slash as the field
// manager.
func UserAgent(program string) string { return program + "/" + ReadVersion().Version }

// NewMetric returns a gauge with the value 1 and the version as labels.
func NewMetric() prometheus.Collector {
	v := ReadVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "torpor_build_info", Help: "1, labeled with the version that the program was built from.",
		ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "go": v.Go},
	}, func() float64 { return 1 })
}
