// SPDX-License-Identifier: Apache-2.0

// Package hub observes a hub before Torpor is installed or upgraded. It changes nothing on the hub.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/config/crd"
	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
	"github.com/torpor-dev/torpor/internal/admin/crds"
	"github.com/torpor-dev/torpor/internal/leaderelection/installationlock"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
)

const (
	// managerDeployment is the name of the manager's Deployment in the chart and in config.
	managerDeployment = "torpor-manager"
	// maxPods is the maximum number of Pods of a Deployment that are read.
	maxPods = 20
)

// webhookName is the name of both webhook configurations for apps.
const webhookName = "torpor"

// Observer reads the state of one hub.
type Observer struct {
	Config *rest.Config
	// Namespace is the namespace of the requested installation.
	Namespace string
	Clock     clock.PassiveClock
}

// Observe reads everything that the decision needs, and sends dry-run requests to the installed admission policies and
// webhooks. It returns an error if the caller lacks a permission to read, except for Pods, Deployments and the Leases
// of parts. A missing object is not an error, but part of the observation.
func (o Observer) Observe(ctx context.Context) (admincheck.Observed, error) {
	seen := admincheck.Observed{Namespace: o.Namespace}
	// The default limits of client-go would delay some of these requests by seconds. They are sent once, one after
	// the other.
	o.Config = rest.CopyConfig(o.Config)
	o.Config.QPS = -1
	kube, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return seen, fmt.Errorf("create a client of the hub: %w", err)
	}
	definitions, err := clientset.NewForConfig(o.Config)
	if err != nil {
		return seen, fmt.Errorf("create a client of the hub: %w", err)
	}
	if err := o.observeClock(ctx, &seen); err != nil {
		return seen, err
	}
	version, err := kube.Discovery().ServerVersion()
	if err != nil {
		return seen, fmt.Errorf("read the version of the hub: %w", err)
	}
	seen.Version = version.GitVersion
	if seen.Served, err = listServed(kube); err != nil {
		return seen, err
	}
	if seen.Missing, err = listMissingRights(ctx, kube, o.Namespace); err != nil {
		return seen, err
	}
	if seen.Definitions, err = judgeDefinitions(ctx, definitions); err != nil {
		return seen, err
	}
	if err := observeWebhooks(ctx, kube, &seen); err != nil {
		return seen, err
	}
	if err := o.observeAdmission(ctx, kube, &seen); err != nil {
		return seen, err
	}
	if seen.Deployment, err = readDeployment(ctx, kube, o.Namespace); err != nil {
		return seen, err
	}
	if err := observeLeaders(ctx, kube, &seen); err != nil {
		return seen, err
	}
	return seen, nil
}

// observeLeaders reads the Leases of the active installation. If the caller may not list the Leases of the parts, the
// leaders of the parts are unknown.
func observeLeaders(ctx context.Context, kube kubernetes.Interface, seen *admincheck.Observed) error {
	held, err := kube.CoordinationV1().Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
	switch {
	case k8serrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the Lease of the installation: %w", err)
	}
	if seen.Acting = lease.Read(held, seen.Now).Installation; seen.Acting == "" {
		return nil
	}
	parts, err := kube.CoordinationV1().Leases(seen.Acting).List(ctx, metav1.ListOptions{LabelSelector: torporv1alpha1.PartLabel})
	switch {
	case k8serrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("list the Leases of the parts: %w", err)
	}
	for _, l := range lease.ReadLeaders(parts.Items, seen.Now) {
		if l.Acts {
			seen.Leaders = append(seen.Leaders, admincheck.PartLeader{
				Part: l.Part, Lease: l.Lease, Pod: l.Pod, Name: l.Name(), Scope: l.DescribeScope(), Since: l.Since, EndedAt: l.EndedAt,
			})
		}
	}
	return nil
}

// observeClock records the local time and the Date header of a response.
func (o Observer) observeClock(ctx context.Context, seen *admincheck.Observed) error {
	client, err := rest.HTTPClientFor(o.Config)
	if err != nil {
		return fmt.Errorf("create a client of the hub: %w", err)
	}
	address, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return fmt.Errorf("read the address of the hub: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("create a request: %w", err)
	}
	asked := o.Clock.Now()
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("read the time of the hub: %w", err)
	}
	seen.Now = o.Clock.Now()
	seen.Travel = seen.Now.Sub(asked)
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		seen.ServerTime = at
	}
	return answer.Body.Close()
}

// listServed returns the needed resources that the API server serves. It queries each group version once. A group
// version that is not served has no resources.
func listServed(kube kubernetes.Interface) ([]admincheck.APIResource, error) {
	var served []admincheck.APIResource
	known := map[string]*metav1.APIResourceList{}
	for _, r := range append(admincheck.NeededResources(), admincheck.RecordResource()) {
		groupVersion := metav1.GroupVersion{Group: r.Group, Version: r.Version}.String()
		list, isKnown := known[groupVersion]
		if !isKnown {
			var err error
			list, err = kube.Discovery().ServerResourcesForGroupVersion(groupVersion)
			if err != nil && !k8serrors.IsNotFound(err) {
				return nil, fmt.Errorf("list the kinds in %s: %w", groupVersion, err)
			}
			known[groupVersion] = list
		}
		if list != nil && slices.ContainsFunc(list.APIResources, func(found metav1.APIResource) bool { return found.Name == r.Name }) {
			served = append(served, r)
		}
	}
	return served, nil
}

func listMissingRights(ctx context.Context, kube kubernetes.Interface, namespace string) ([]admincheck.AccessRight, error) {
	var missing []admincheck.AccessRight
	for _, r := range append(admincheck.NeededRights(), admincheck.GrantingRights()...) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Name, Namespace: namespaceOf(r.Resource, namespace),
		}}}
		answer, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("check the permission to %s: %w", r, err)
		}
		if !answer.Status.Allowed {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// namespaceOf returns the namespace in which a permission on a resource is checked, or "" for cluster-scoped
// resources.
func namespaceOf(r admincheck.APIResource, namespace string) string {
	switch r.Name {
	case "serviceaccounts", "services", "deployments", "roles", "rolebindings", "poddisruptionbudgets", "networkpolicies":
		return namespace
	default:
		return metav1.NamespaceAll
	}
}

// readDeployment returns the total numbers of Pods of the manager's Deployments, or nil if the namespace has no such
// Deployment. If the caller may not list Pods, no problems of Pods are reported.
func readDeployment(ctx context.Context, kube kubernetes.Interface, namespace string) (*admincheck.ManagerDeployment, error) {
	all, err := listDeployments(ctx, kube, namespace)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	sum := &admincheck.ManagerDeployment{}
	for i := range all {
		desired, ready := int32(1), all[i].Status.ReadyReplicas // The API server sets replicas to 1 by default.
		if all[i].Spec.Replicas != nil {
			desired = *all[i].Spec.Replicas
		}
		sum.Desired, sum.Ready = sum.Desired+desired, sum.Ready+ready
		if ready >= desired {
			continue
		}
		problems, err := listProblems(ctx, kube, &all[i])
		if err != nil {
			return nil, err
		}
		sum.Problems = append(sum.Problems, problems...)
	}
	slices.Sort(sum.Problems)
	return sum, nil
}

// listDeployments returns the Deployments of the manager. If it finds none by their label, or the caller may not list
// them, it returns the Deployment with the name that config/manager uses.
func listDeployments(ctx context.Context, kube kubernetes.Interface, namespace string) ([]appsv1.Deployment, error) {
	all, err := kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=torpor"})
	if err == nil && len(all.Items) > 0 {
		return all.Items, nil
	}
	if err != nil && !k8serrors.IsForbidden(err) {
		return nil, fmt.Errorf("list the Deployments of the manager: %w", err)
	}
	found, err := kube.AppsV1().Deployments(namespace).Get(ctx, managerDeployment, metav1.GetOptions{})
	switch {
	case k8serrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the Deployment of the manager: %w", err)
	}
	return []appsv1.Deployment{*found}, nil
}

// listProblems returns why Pods of a Deployment are not ready.
func listProblems(ctx context.Context, kube kubernetes.Interface, d *appsv1.Deployment) ([]string, error) {
	var problems []string
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			problems = append(problems, c.Message)
		}
	}
	pods, err := kube.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector), Limit: maxPods})
	if k8serrors.IsForbidden(err) {
		return problems, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the Pods of the manager: %w", err)
	}
	for i := range pods.Items {
		problem := describeProblem(&pods.Items[i])
		if problem == "" {
			problem = readReadiness(ctx, kube, &pods.Items[i])
		}
		if problem != "" {
			problems = append(problems, pods.Items[i].Name+": "+problem)
		}
	}
	return problems, nil
}

// describeProblem returns why a Pod is not ready, or "" if its status contains no reason.
func describeProblem(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating":
			return strings.TrimSuffix(s.State.Waiting.Reason+": "+s.State.Waiting.Message, ": ")
		case s.State.Terminated != nil:
			return fmt.Sprintf("the container ended with %d: %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func judgeDefinitions(ctx context.Context, hub clientset.Interface) ([]crds.Judgement, error) {
	files, err := fs.Glob(crd.Files, "*_*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the definitions: %w", err)
	}
	var all []crds.Judgement
	for _, file := range files {
		data, err := crd.Files.ReadFile(file)
		ours := &apiextensionsv1.CustomResourceDefinition{}
		if err = errors.Join(err, yaml.Unmarshal(data, ours)); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		served, err := hub.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, ours.Name, metav1.GetOptions{})
		if k8serrors.IsNotFound(err) {
			served, err = nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the CustomResourceDefinition %s of the hub: %w", ours.Name, err)
		}
		judgement, err := crds.JudgeCRD(ours, served)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", ours.Name, err)
		}
		all = append(all, judgement)
	}
	return all, nil
}

// observeWebhooks reads the policies and webhooks that record the requesters of stops, and the webhooks for apps.
func observeWebhooks(ctx context.Context, kube kubernetes.Interface, seen *admincheck.Observed) (err error) {
	for _, name := range installationlock.ListRecordNames() {
		_, err := kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			seen.RecordPolicies = append(seen.RecordPolicies, name)
		} else if !k8serrors.IsNotFound(err) { // The API server also returns NotFound if it does not serve the kind.
			return fmt.Errorf("read the binding of the policy %s: %w", name, err)
		}
		noting, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !k8serrors.IsNotFound(err) {
			return fmt.Errorf("read the webhook configuration %s: %w", name, err)
		}
		if err == nil && len(noting.Webhooks) > 0 {
			seen.RecordWebhooks = append(seen.RecordWebhooks, admincheck.WebhookClient{Name: name, CABundle: noting.Webhooks[0].ClientConfig.CABundle})
		}
	}
	seen.Webhooks, err = listWebhooks(ctx, kube)
	return err
}

// listWebhooks returns the webhooks for apps, or none if they are not installed.
func listWebhooks(ctx context.Context, kube kubernetes.Interface) ([]admincheck.WebhookClient, error) {
	var found []admincheck.WebhookClient
	add := func(name string, c admissionregistrationv1.WebhookClientConfig) {
		found = append(found, admincheck.WebhookClient{Name: name, CABundle: c.CABundle})
	}
	mutating, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookName, metav1.GetOptions{})
	if err != nil && !k8serrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the webhook configuration: %w", err)
	}
	validating, validatingErr := kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhookName, metav1.GetOptions{})
	if validatingErr != nil && !k8serrors.IsNotFound(validatingErr) {
		return nil, fmt.Errorf("read the webhook configuration: %w", validatingErr)
	}
	if err == nil {
		for _, w := range mutating.Webhooks {
			add(w.Name, w.ClientConfig)
		}
	}
	if validatingErr == nil {
		for _, w := range validating.Webhooks {
			add(w.Name, w.ClientConfig)
		}
	}
	return found, nil
}
