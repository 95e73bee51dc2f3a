// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestVolumeGrowth(t *testing.T) {
	const data, logs = "{metadata: {name: mysql-data}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}",
		"{metadata: {name: logs}, spec: {resources: {requests: {storage: 1024Mi}}}}"
	live := parseStatefulSet(t, data, logs)
	going := live.DeepCopy()
	going.DeletionTimestamp = new(metav1.Unix(1, 0))
	larger := strings.Replace(data, "2Gi", "3Gi", 1)
	for name, c := range map[string]struct {
		live       *appsv1.StatefulSet
		claims     []string
		growing    string
		shrunk     string
		relabelled int
	}{
		"no StatefulSet: no volume grows":                {claims: []string{data, logs}},
		"a terminating StatefulSet delays the growth":    {live: going, claims: []string{larger, logs}},
		"the same size in another unit: no volume grows": {live: live, claims: []string{data, strings.Replace(logs, "1024Mi", "1Gi", 1)}},
		"the first of two volumes grows":                 {live: live, claims: []string{larger, logs}, growing: "[mysql-data-moco-a-0 3Gi]"},
		"two volumes grow": {
			live: live, claims: []string{larger, strings.Replace(logs, "1024Mi", "1025Mi", 1)}, growing: "[mysql-data-moco-a-0 3Gi logs-moco-a-0 1025Mi]",
		},
		"larger template without a storage class: the volume grows":   {live: live, claims: []string{strings.Replace(larger, "storageClassName: fast, ", "", 1), logs}, growing: "[mysql-data-moco-a-0 3Gi]"},
		"changed label of a claim template: relabelled":               {live: live, claims: []string{strings.Replace(data, "{name:", "{labels: {a: b}, name:", 1), logs}, relabelled: 1},
		"changed annotation of the second claim template: relabelled": {live: live, claims: []string{data, strings.Replace(logs, "{name:", "{annotations: {a: b}, name:", 1)}, relabelled: 1},
		"changed label and a different storage class: left to the user": {live: live, claims: []string{
			strings.NewReplacer("fast", "slow", "{name:", "{labels: {a: b}, name:").Replace(data), logs,
		}},
		"different storage class: left to the user":       {live: live, claims: []string{strings.Replace(larger, "fast", "slow", 1), logs}},
		"different access mode: left to the user":         {live: live, claims: []string{strings.Replace(larger, "Once", "Many", 1), logs}},
		"additional claim template: left to the user":     {live: live, claims: []string{larger, logs, strings.Replace(logs, "logs", "more", 1)}},
		"missing claim template: left to the user":        {live: live, claims: []string{larger}},
		"different claim template name: left to the user": {live: live, claims: []string{larger, strings.Replace(logs, "logs", "more", 1)}},
		"smaller template: shrunk, and no volume grows":   {live: live, claims: []string{strings.Replace(data, "2Gi", "1Gi", 1), logs}, shrunk: "[mysql-data]"},
		"larger template and smaller template: one volume grows, and one template is shrunk": {
			live: live, claims: []string{larger, strings.Replace(logs, "1024Mi", "1Mi", 1)}, growing: "[mysql-data-moco-a-0 3Gi]", shrunk: "[logs]",
		},
		"smaller template and a different storage class: left to the user": {live: live, claims: []string{
			strings.NewReplacer("2Gi", "1Gi", "fast", "slow").Replace(data), logs,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(parseStatefulSet(t, c.claims...))
			testenv.ExpectNoError(t, err)
			change := CompareClaims(c.live, &unstructured.Unstructured{Object: wanted})
			var found []string
			for _, g := range change.Growing {
				found = append(found, g.ClaimName("moco-a-0"), g.Size.String())
			}
			testenv.ExpectEqual(t, "growing", c.growing, strings.TrimPrefix(fmt.Sprint(found), "[]"))
			testenv.ExpectEqual(t, "relabelled", c.relabelled, len(change.Relabelled))
			testenv.ExpectEqual(t, "shrunk", c.shrunk, strings.TrimPrefix(fmt.Sprint(change.Shrunk), "[]"))
		})
	}
}

func parseStatefulSet(t *testing.T, claims ...string) *appsv1.StatefulSet {
	t.Helper()
	set := &appsv1.StatefulSet{}
	testenv.ExpectNoError(t, yaml.Unmarshal([]byte("spec: {volumeClaimTemplates: ["+strings.Join(claims, ", ")+"]}"), set))
	return set
}
