// SPDX-License-Identifier: Apache-2.0

package machinenames

import "testing"

func TestFindInfraID(t *testing.T) {
	for name, want := range map[string]string{
		"dev-master-0":                   "dev",
		"dev-x7k2p-worker-b-9vq4d":       "dev-x7k2p",
		"dev-x7k2p-worker-0-9vq4d":       "dev-x7k2p",
		"dev-infra-a-9vq4d":              "dev",
		"dev-bootstrap":                  "dev",
		"dev-control-plane":              "dev",
		"dev-control-plane-q8wz4":        "dev",
		"dev-worker2":                    "dev",
		"dev-2-worker-0":                 "dev-2",
		"dev-worker-worker-0":            "dev-worker",
		"dev-worker-0-master-0":          "dev-worker-0",
		"dev-master-x7k2p-worker-0":      "dev-master-x7k2p",
		"dev-worker-x7k2p-gpu-0":         "dev-worker-x7k2p",
		"dev-worker-x7k2p-gpu-b-9vq4d":   "dev-worker-x7k2p",
		"dev-x7k2p-db":                   "dev-x7k2p",
		"dev-x7k2p-":                     "",
		"dev-nginx-db":                   "",
		"dev-gpu-b-9vq4d":                "",
		"dev-worker-db":                  "",
		"dev-webmaster-0":                "",
		"dev":                            "",
		"worker-0":                       "",
		"-worker-0":                      "",
		"":                               "",
		"dev-worker-0\ndev-2-worker-0\n": "",
	} {
		if got := FindInfraID(name); got != want {
			t.Errorf("%q: found %q, want %q", name, got, want)
		}
	}
}
