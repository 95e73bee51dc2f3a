// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestGoUsesAShareOfTheContainersMemory(t *testing.T) {
	const unlimited, container = int64(1) << 62, "536870912"
	before := debug.SetMemoryLimit(unlimited)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for name, row := range map[string]struct {
		env  map[string]string
		want int64
		err  string
	}{
		"a container with a memory limit: Go's limit is 70 percent of that limit":     {map[string]string{"TORPOR_MEMORY_LIMIT": container}, 536870912 / 100 * 70, ""},
		"a container without a memory limit: no limit for Go":                         {nil, unlimited, ""},
		"a container with a memory limit and GOMEMLIMIT: GOMEMLIMIT takes precedence": {map[string]string{"TORPOR_MEMORY_LIMIT": container, "GOMEMLIMIT": "1GiB"}, unlimited, ""},
		"a memory limit of the largest int64: no overflow":                            {map[string]string{"TORPOR_MEMORY_LIMIT": "9223372036854775807"}, 9223372036854775807 / 100 * 70, ""},
		"a memory limit as a Kubernetes quantity: refused with a hint":                {map[string]string{"TORPOR_MEMORY_LIMIT": "512Mi"}, unlimited, "expected TORPOR_MEMORY_LIMIT to be a number of bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(unlimited)
			err := limitMemory(func(name string) string { return row.env[name] })
			if found := debug.SetMemoryLimit(-1); found != row.want || (err == nil) != (row.err == "") || err != nil && !strings.HasPrefix(err.Error(), row.err) {
				t.Errorf("expected %d and %q, found %d and %v", row.want, row.err, found, err)
			}
		})
	}
}
