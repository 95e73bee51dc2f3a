// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	for name, row := range map[string]struct {
		path  []string
		value any
		says  string
	}{
		"a power state that does not exist": {[]string{"spec", "powerState"}, "Napping", `spec.powerState: Unsupported value: "Napping": supported values: "", "Running", "Hibernating"`},
		"a power state that is no text":     {[]string{"spec", "powerState"}, true, "spec.powerState: Invalid value"},
		"no cluster name":                   {[]string{"spec", "clusterName"}, nil, "spec.clusterName: Required value"},
		"no base domain":                    {[]string{"spec", "baseDomain"}, nil, "spec.baseDomain: Required value"},
		"no platform":                       {[]string{"spec", "platform"}, nil, "spec.platform: Required value"},
		"no region":                         {[]string{"spec", "platform", "aws", "region"}, nil, "spec.platform.aws.region: Required value"},
		"no infraID":                        {[]string{"spec", "clusterMetadata", "infraID"}, nil, "spec.clusterMetadata.infraID: Required value"},
		"no cluster id":                     {[]string{"spec", "clusterMetadata", "clusterID"}, nil, "spec.clusterMetadata.clusterID: Required value"},
		"no reference to the kubeconfig":    {[]string{"spec", "clusterMetadata", "adminKubeconfigSecretRef"}, nil, "adminKubeconfigSecretRef: Required value"},
		"no spec":                           {[]string{"spec"}, nil, "spec: Required value"},
		"installed as text":                 {[]string{"spec", "installed"}, "yes", "spec.installed: Invalid value"},
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
