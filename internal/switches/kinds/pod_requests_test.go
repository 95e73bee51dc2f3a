// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/stop/savings"
)

func TestReadPodRequests(t *testing.T) {
	t.Parallel()
	const request = `resources: {requests: {cpu: 500m, memory: 128M}}`
	for name, row := range map[string]struct {
		spec string
		want savings.Rate
	}{
		"requests are multiplied by the replicas":                                  {`{replicas: 3, template: {spec: {containers: [{` + request + `}, {` + request + `}]}}}`, savings.Rate{CPUMillis: 3000, MemoryKiB: 750000}},
		"an object without replicas saves nothing":                                 {`{replicas: 0, template: {spec: {containers: [{` + request + `}]}}}`, savings.Rate{}},
		"Pods without requests save nothing":                                       {`{replicas: 3, template: {spec: {containers: [{name: a}]}}}`, savings.Rate{}},
		"a limit of a container without a request counts as the request":           {`{replicas: 1, template: {spec: {containers: [{resources: {limits: {cpu: 2}}}]}}}`, savings.Rate{CPUMillis: 2000}},
		"a larger request of an init container replaces the sum of the containers": {`{replicas: 1, template: {spec: {initContainers: [{resources: {requests: {cpu: 3}}}], containers: [{` + request + `}]}}}`, savings.Rate{CPUMillis: 3000, MemoryKiB: 125000}},
		"a sidecar's requests are added to those of the containers":                {`{replicas: 1, template: {spec: {initContainers: [{restartPolicy: Always, ` + request + `}], containers: [{` + request + `}]}}}`, savings.Rate{CPUMillis: 1000, MemoryKiB: 250000}},
		"Pod-level requests replace the sum of the containers":                     {`{replicas: 1, template: {spec: {` + request + `, containers: [{resources: {requests: {cpu: 100m}}}]}}}`, savings.Rate{CPUMillis: 500, MemoryKiB: 125000}},
		"the overhead of a Pod is added to its requests":                           {`{replicas: 2, template: {spec: {overhead: {cpu: 50m}, containers: [{resources: {requests: {cpu: 100m}}}]}}}`, savings.Rate{CPUMillis: 300}},
		"a template that cannot be read saves nothing":                             {`{replicas: 2, template: {spec: {containers: 7}}}`, savings.Rate{}},
		"a huge request is reduced to maxRequest":                                  {`{replicas: 2, template: {spec: {containers: [{resources: {requests: {cpu: 4P}}}]}}}`, savings.Rate{CPUMillis: 2 * maxRequest}},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(row.spec), &spec); err != nil {
			t.Fatal(err)
		}
		spec["replicas"] = int64(spec["replicas"].(float64))
		u.Object["spec"] = spec
		if found := readPodRequests(u); found != row.want {
			t.Errorf("%s: expected %+v, found %+v", name, row.want, found)
		}
	}
}
