// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
)

const (
	// probeName is the prefix of the names of probes, which are never stored.
	probeName = "torpor-check-"
	// probeTimeout limits one request. It is longer than the timeouts of Torpor's webhooks.
	probeTimeout = 5 * time.Second
	// maxProblem limits the length of the API server's message in a finding, in bytes.
	maxProblem = 300
)

// probe is an object that is created with a dry run, so that the API server calls admission without storing it.
type probe struct {
	kind schema.GroupVersionKind
	spec map[string]any
	// annotations request a stop, with a reason and an end for policies that require them.
	annotations map[string]string
	// admission is the name of the policy or webhook configuration, and noted is the annotation that it should add.
	// noted is empty for the webhook for apps, for which any answer is sufficient.
	admission, noted string
}

// listProbes returns the probes for the installed policies and webhooks, except those for Slumbers.
func listProbes(seen admincheck.Observed) []probe {
	stop := func(more ...string) map[string]string {
		annotations := map[string]string{torporv1alpha1.ReasonAnnotation: "torpor check", torporv1alpha1.UntilAnnotation: "1h"}
		for _, name := range more {
			annotations[name] = "true"
		}
		return annotations
	}
	pod := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "torpor-check"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "none", "image": "none"}}},
	}
	all := []probe{
		{
			kind: hivev1.ClusterDeploymentKind(), admission: "torpor-hibernation-record", noted: torporv1alpha1.RequestedByAnnotation, annotations: stop(),
			spec: map[string]any{
				"clusterName": "torpor-check", "baseDomain": "example.com", "powerState": "Hibernating",
				"platform": map[string]any{"aws": map[string]any{"region": "none", "credentialsSecretRef": map[string]any{"name": "none"}}},
			},
		},
		{
			kind: mocov1beta2.MySQLClusterKind(), admission: "torpor-mysql-record", noted: mocov1beta2.ClusteringRequestedByAnnotation,
			annotations: stop(mocov1beta2.ClusteringStoppedAnnotation),
			spec: map[string]any{
				"replicas":    int64(1),
				"podTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "mysqld", "image": "none"}}}},
				"volumeClaimTemplates": []any{map[string]any{
					"metadata": map[string]any{"name": "mysql-data"},
					"spec":     map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
				}},
			},
		},
		{
			kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, admission: "torpor-workloads-record",
			noted: torporv1alpha1.RequestedByAnnotation, annotations: stop(torporv1alpha1.StoppedAnnotation),
			spec: map[string]any{
				"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": "torpor-check"}}, "template": pod,
			},
		},
		{
			kind: korifiv1alpha1.CFAppKind(), admission: webhookName,
			spec: map[string]any{"displayName": "torpor-check", "desiredState": "STOPPED", "lifecycle": map[string]any{"type": "docker", "data": map[string]any{}}},
		},
	}
	return slices.DeleteFunc(all, func(p probe) bool { return !isInstalled(seen, p.admission) })
}

func isInstalled(seen admincheck.Observed, admission string) bool {
	isRecord := slices.ContainsFunc(seen.RecordWebhooks, func(w admincheck.WebhookClient) bool { return w.Name == admission })
	return isRecord || slices.Contains(seen.RecordPolicies, admission) || admission == webhookName && len(seen.Webhooks) > 0
}

// observeAdmission sends the probes for the installed policies and webhooks.
func (o Observer) observeAdmission(ctx context.Context, kube kubernetes.Interface, seen *admincheck.Observed) error {
	probes := listProbes(*seen)
	if len(probes) == 0 {
		return nil
	}
	namespace := o.Namespace
	if _, err := kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
		namespace = metav1.NamespaceDefault
	}
	c, err := newProbeClient(o.Config, probes)
	if err != nil {
		return err
	}
	for _, p := range probes {
		answer, isServed := p.send(ctx, c, namespace)
		if isServed {
			seen.Admission = append(seen.Admission, answer)
		}
	}
	return nil
}

func newProbeClient(cfg *rest.Config, probes []probe) (client.Client, error) {
	mapper := meta.NewDefaultRESTMapper(nil) // Discovery would cost a dozen requests.
	for _, p := range probes {
		mapper.Add(p.kind, meta.RESTScopeNamespace)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{} // Warnings about a probe do not concern the user.
	c, err := client.New(cfg, client.Options{Scheme: runtime.NewScheme(), Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create a client of the hub: %w", err)
	}
	return c, nil
}

// send creates the probe with a dry run. isServed is false if the API server does not serve the kind, so no object of
// the kind exists.
func (p probe) send(ctx context.Context, c client.Client, namespace string) (answer admincheck.AdmissionAnswer, isServed bool) {
	answer = admincheck.AdmissionAnswer{Kind: p.kind.Kind, Admission: p.admission, IsForApps: p.noted == ""}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": p.spec}}
	obj.SetGroupVersionKind(p.kind)
	obj.SetNamespace(namespace)
	obj.SetGenerateName(probeName)
	obj.SetAnnotations(p.annotations)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := c.Create(ctx, obj, client.DryRunAll)
	isDenied := err != nil && strings.Contains(err.Error(), "denied the request")
	switch {
	case meta.IsNoMatchError(err), k8serrors.IsNotFound(err):
		return answer, false
	case k8serrors.IsForbidden(err) && !isDenied:
		answer.IsForbidden = true
	case err != nil && (p.noted != "" || !isDenied): // The webhook for apps has answered even if it denies the app.
		answer.Problem = shorten(err.Error())
	case p.noted != "" && obj.GetAnnotations()[p.noted] == "":
		answer.Problem = "found no annotation " + p.noted + " in the response"
	}
	return answer, true
}

func shorten(text string) string {
	if len(text) <= maxProblem {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblem], "") + "…"
}
