// SPDX-License-Identifier: Apache-2.0

// Package buildinfo says what a program was built from: to people, to servers that it asks, and in its metrics.
package buildinfo

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

// ReadVersion returns what this program was built from. What is not known, for example outside of a repository, is "unknown".
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

// UserAgent is how a program names itself to the servers that it asks. Kubernetes takes what is before the slash for a field manager.
func UserAgent(program string) string { return program + "/" + ReadVersion().Version }

// NewMetric returns a gauge that is 1, with what the program was built from as labels.
func NewMetric() prometheus.Collector {
	v := ReadVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "torpor_build_info", Help: "1, labeled with the version that the program was built from.",
		ConstLabels: prometheus.Labels{"version": v.Version, "commit": v.Commit, "go": v.Go},
	}, func() float64 { return 1 })
}
