// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	systemNamespace, leaseNamespace = "kube-system", "kube-node-lease"
	// maxWebhooks is the maximum number of webhooks of a cluster that are examined.
	maxWebhooks = 500
	wildcard    = "*"
	failPolicy  = "Fail"
)

// webhookConfiguration holds the relevant fields of a ValidatingWebhookConfiguration or a
// MutatingWebhookConfiguration.
type webhookConfiguration struct {
	Metadata objectName         `json:"metadata"`
	Webhooks []admissionWebhook `json:"webhooks"`
}

type admissionWebhook struct {
	FailurePolicy string `json:"failurePolicy"`
	ClientConfig  struct {
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
	} `json:"clientConfig"`
	Rules             []webhookRule         `json:"rules"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	ObjectSelector    *metav1.LabelSelector `json:"objectSelector"`
}

type webhookRule struct {
	Operations []string `json:"operations"`
	APIGroups  []string `json:"apiGroups"`
	Resources  []string `json:"resources"`
}

// wakeUpRequest is a request that must succeed when a cluster resumes.
type wakeUpRequest struct {
	group, resource, operation string
	// namespaces are the namespaces of the request's objects; nil for cluster-scoped objects.
	namespaces []string
}

// wakeUpRequests returns the requests of kubelets and of the control plane that must succeed. own is the namespace
// of the webhook.
func wakeUpRequests(own string) []wakeUpRequest {
	system := []string{systemNamespace, own}
	return []wakeUpRequest{
		{"", "nodes", "CREATE", nil},
		{"", "nodes", "UPDATE", nil},
		{"", "nodes/status", "UPDATE", nil},
		{"certificates.k8s.io", "certificatesigningrequests", "CREATE", nil},
		{"certificates.k8s.io", "certificatesigningrequests/approval", "UPDATE", nil},
		{"certificates.k8s.io", "certificatesigningrequests/status", "UPDATE", nil},
		{"coordination.k8s.io", "leases", "CREATE", []string{leaseNamespace, systemNamespace}},
		{"coordination.k8s.io", "leases", "UPDATE", []string{leaseNamespace, systemNamespace}},
		{"", "pods", "CREATE", system},
		{"", "pods/binding", "CREATE", system},
		{"", "pods/status", "UPDATE", system},
		{"", "serviceaccounts/token", "CREATE", system},
	}
}

// webhookAtRisk is a webhook that may make requests fail while the cluster resumes, because its server might not run
// yet.
type webhookAtRisk struct {
	configuration, service string
	// namespaces are the namespaces of the requests. The webhook is called if its selector matches one of them. It
	// is nil for a cluster-scoped request, for which the webhook is always called.
	namespaces []string
	selector   labels.Selector
}

// addWebhooks records the webhooks that the API server may call when the cluster resumes, and whose failure rejects the
// request. It skips webhooks whose server is outside the cluster and may be available. It also skips webhooks that
// select objects by labels, which are assumed to select no system objects.
func addWebhooks(s *Survey, item []byte) error {
	var c webhookConfiguration
	if err := decode(item, &c); err != nil {
		return err
	}
	for _, w := range c.Webhooks {
		service := w.ClientConfig.Service
		if w.FailurePolicy != "" && w.FailurePolicy != failPolicy || service == nil || !isEmptySelector(w.ObjectSelector) || len(s.webhooks) >= maxWebhooks {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
		if err != nil {
			return fmt.Errorf("read a selector: %w", err)
		}
		if w.NamespaceSelector == nil {
			selector = labels.Everything()
		}
		risk := webhookAtRisk{configuration: c.Metadata.Name, service: service.Namespace + "/" + service.Name, selector: selector}
		isAsked, isAlways := false, false
		for _, request := range wakeUpRequests(service.Namespace) {
			if !slices.ContainsFunc(w.Rules, request.isMatchedBy) {
				continue
			}
			isAsked, isAlways = true, isAlways || request.namespaces == nil
			risk.namespaces = append(risk.namespaces, request.namespaces...)
		}
		if isAlways {
			risk.namespaces = nil
		}
		if isAsked {
			s.keepWebhook(risk)
		}
	}
	return nil
}

func isEmptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

func (r wakeUpRequest) isMatchedBy(rule webhookRule) bool {
	has := func(list []string, values ...string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
	}
	resources := []string{r.resource, "*/*"}
	if resource, sub, isSub := strings.Cut(r.resource, "/"); isSub {
		resources = append(resources, resource+"/*", "*/"+sub)
	} else {
		resources = append(resources, wildcard)
	}
	return has(rule.Operations, r.operation, wildcard) && has(rule.APIGroups, r.group, wildcard) && has(rule.Resources, resources...)
}

func (s *Survey) keepWebhook(w webhookAtRisk) {
	s.webhooks = append(s.webhooks, w)
	for _, namespace := range w.namespaces {
		s.namespaces[namespace] = nil
	}
	if len(s.services) < maxServices {
		s.services[w.service] = true
	}
}

// Services returns at most maxServices Services of the recorded webhooks, as namespace/name. The caller reads them from
// the cluster and passes them to AddService.
func (s *Survey) Services() []string { return slices.Sorted(maps.Keys(s.services)) }

// ServicePath returns the path of a Service at the API server.
func ServicePath(name string) string {
	namespace, service, _ := strings.Cut(name, "/")
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/services/" + url.PathEscape(service)
}

// AddService records a Service of a webhook. The endpoints of a Service without a selector may be outside the cluster,
// so its webhooks are not at risk.
func (s *Survey) AddService(name string, item []byte) {
	var service struct {
		Spec struct {
			Selector map[string]string `json:"selector"`
		} `json:"spec"`
	}
	if len(item) <= MaxItemBytes && decode(item, &service) == nil && len(service.Spec.Selector) == 0 {
		s.services[name] = false
	}
}

// judgeWebhooks adds a finding about the webhook configurations with a webhook that may block the resume of the
// cluster.
func (s *Survey) judgeWebhooks() {
	var names []string
	for _, w := range s.webhooks {
		if isInside, isRead := s.services[w.service]; isRead && !isInside {
			continue
		}
		isChosen := func(namespace string) bool {
			set := s.namespaces[namespace]
			return set != nil && w.selector.Matches(labels.Set(set))
		}
		if len(w.namespaces) == 0 || slices.ContainsFunc(w.namespaces, isChosen) {
			names = append(names, w.configuration)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		s.note(torporv1alpha1.WebhookBlocksWakeUpFinding, name, 0)
	}
}
