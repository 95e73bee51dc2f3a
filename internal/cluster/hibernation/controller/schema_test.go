// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	for name, row := range map[string]struct {
		path  []string
		value any
		says  string
	}{
		"unknown power state is rejected":                 {[]string{"spec", "powerState"}, "Napping", `spec.powerState: Unsupported value: "Napping": supported values: "", "Running", "Hibernating"`},
		"power state that is not a string is rejected":    {[]string{"spec", "powerState"}, true, "spec.powerState: Invalid value"},
		"missing cluster name is rejected":                {[]string{"spec", "clusterName"}, nil, "spec.clusterName: Required value"},
		"missing base domain is rejected":                 {[]string{"spec", "baseDomain"}, nil, "spec.baseDomain: Required value"},
		"missing platform is rejected":                    {[]string{"spec", "platform"}, nil, "spec.platform: Required value"},
		"missing region is rejected":                      {[]string{"spec", "platform", "aws", "region"}, nil, "spec.platform.aws.region: Required value"},
		"missing infraID is rejected":                     {[]string{"spec", "clusterMetadata", "infraID"}, nil, "spec.clusterMetadata.infraID: Required value"},
		"missing cluster id is rejected":                  {[]string{"spec", "clusterMetadata", "clusterID"}, nil, "spec.clusterMetadata.clusterID: Required value"},
		"missing reference to the kubeconfig is rejected": {[]string{"spec", "clusterMetadata", "adminKubeconfigSecretRef"}, nil, "adminKubeconfigSecretRef: Required value"},
		"missing spec is rejected":                        {[]string{"spec"}, nil, "spec: Required value"},
		"URL override of 2,049 characters is rejected": {
			[]string{"spec", "controlPlaneConfig", "apiURLOverride"}, strings.Repeat("a", 2049), "spec.controlPlaneConfig.apiURLOverride: Too long: may not be more than 2048",
		},
		"IP override of 46 characters is rejected": {
			[]string{"spec", "controlPlaneConfig", "apiServerIPOverride"}, strings.Repeat("1", 46), "spec.controlPlaneConfig.apiServerIPOverride: Too long: may not be more than 45",
		},
		"string in spec.installed is rejected": {[]string{"spec", "installed"}, "yes", "spec.installed: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testCluster{key: client.ObjectKey{Namespace: "default", Name: "refused"}, infraID: "x"}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.buildClusterDeployment())
			if err != nil {
				t.Fatal(err)
			}
			cd := &unstructured.Unstructured{Object: content}
			cd.SetGroupVersionKind(hivev1.ClusterDeploymentKind())
			if row.value == nil {
				unstructured.RemoveNestedField(cd.Object, row.path...)
			} else if err := unstructured.SetNestedField(cd.Object, row.value, row.path...); err != nil {
				t.Fatal(err)
			}
			err = env.Client.Create(t.Context(), cd)
			if !k8serrors.IsInvalid(err) || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, want it to be refused with %q", err, row.says)
			}
		})
	}
}

// TestTheLargestRecordIsSaved records the maximum number of nodes that Torpor reads from a cluster, near the size
// limit of etcd.
func TestTheLargestRecordIsSaved(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	s := &testCluster{key: client.ObjectKey{Namespace: "default", Name: "large"}, infraID: "x"}
	cd := s.buildClusterDeployment()
	testenv.ExpectNoError(t, env.Client.Create(t.Context(), cd))
	for round := range 2 {
		nodes := make([]hivev1.RecordedNode, 3_900)
		for i := range nodes {
			name := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", round, i/250, i%250)
			nodes[i] = hivev1.RecordedNode{Name: name, UID: string(uuid.NewUUID()), Ready: true, Addresses: []hivev1.NodeAddress{
				{Type: "InternalIP", Address: fmt.Sprintf("10.%d.%d.%d", round, i/250, i%250)},
				{Type: "InternalDNS", Address: name},
				{Type: "Hostname", Address: name},
			}}
		}
		nodes[1] = nodes[0] // A hostile cluster may list a node twice.
		record := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(time.Now()), Nodes: nodes}
		// A busy API server ends a request of this size after 34 seconds, and may have stored it.
		testenv.Eventually(t, "the record is saved", func() error {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd); err != nil {
				return err
			}
			cd.Status.Hibernation = record
			return env.Client.Status().Update(t.Context(), cd)
		})
	}
}
