// SPDX-License-Identifier: Apache-2.0

// Package check decides whether a hub is ready for Torpor. It has no side effects: internal/admin/check/hub observes
// the hub.
package check

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/torpor-dev/torpor/internal/admin/crds"
)

// CheckState is the result of one check.
type CheckState string

// The results of a check. A hub is ready if no check has failed.
const (
	Passed CheckState = "ok"
	Warned CheckState = "warning"
	Failed CheckState = "failed"
)

// Check is the name of a check.
type Check string

// The checks, in the order of the report.
const (
	// KubernetesCheck verifies the version of the API server.
	KubernetesCheck Check = "kubernetes"
	// APIsCheck verifies that the API server serves the resources that an installation needs.
	APIsCheck Check = "apis"
	// RecordCheck warns if no policies or webhooks record the requesters of stops. Before an installation, it is enough
	// that the API server serves such policies.
	RecordCheck Check = "record"
	// DefinitionsCheck counts the missing CustomResourceDefinitions and those of another version, and reports which are
	// another project's.
	DefinitionsCheck Check = "definitions"
	// InstallationCheck fails if another installation is active on the hub.
	InstallationCheck Check = "installation"
	// DeploymentCheck verifies that the Pods of the manager are ready.
	DeploymentCheck Check = "deployment"
	// RightsCheck verifies that the caller has the permissions to install Torpor.
	RightsCheck Check = "rights"
	// WebhookCheck verifies the caBundle with which the API server verifies the webhooks for apps.
	WebhookCheck Check = "webhook"
	// AdmissionCheck sends dry-run requests through the installed policies and webhooks, and verifies that they answer.
	AdmissionCheck Check = "admission"
	// ClockCheck compares the clocks of the API server and of the local machine.
	ClockCheck Check = "clock"
)

// ListChecks returns the checks in the order of the report.
func ListChecks() []Check {
	return []Check{KubernetesCheck, APIsCheck, RecordCheck, DefinitionsCheck, InstallationCheck, DeploymentCheck, RightsCheck, WebhookCheck, AdmissionCheck, ClockCheck}
}

// Finding is the result of one check.
type Finding struct {
	Check   Check      `json:"check"`
	State   CheckState `json:"state"`
	Message string     `json:"message"`
	// Remedy is the next step.
	Remedy string `json:"remedy,omitempty"`
}

const (
	// OldestKubernetes is the oldest version whose API server accepts all manifests in config.
	OldestKubernetes = "1.33"
	// RecordKubernetes is the first version that serves mutating admission policies as v1.
	RecordKubernetes = "1.36"
	// A skew of some seconds does not affect Leases and certificates. With a skew of more than a minute, a held
	// Lease appears to have expired.
	bearableSkew, harmfulSkew = 5 * time.Second, time.Minute
	// A CA certificate that expires sooner than this causes a warning. The manager replaces its CA when a third of the
	// validity remains.
	shortestValidity = 7 * 24 * time.Hour
)

// APIResource is a resource of an API group, as in RBAC rules.
type APIResource struct{ Group, Version, Name string }

func (r APIResource) String() string { return strings.Trim(r.Group+"/"+r.Version, "/") + " " + r.Name }

// NeededResources returns the API resources that an installation uses.
func NeededResources() []APIResource {
	return []APIResource{
		{"", "v1", "namespaces"},
		{"", "v1", "serviceaccounts"},
		{"", "v1", "services"},
		{"apps", "v1", "deployments"},
		{"rbac.authorization.k8s.io", "v1", "clusterroles"},
		{"rbac.authorization.k8s.io", "v1", "clusterrolebindings"},
		{"rbac.authorization.k8s.io", "v1", "roles"},
		{"rbac.authorization.k8s.io", "v1", "rolebindings"},
		{"policy", "v1", "poddisruptionbudgets"},
		{"networking.k8s.io", "v1", "networkpolicies"},
		{"flowcontrol.apiserver.k8s.io", "v1", "flowschemas"},
		{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"},
		{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"},
		{"admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"},
		{"admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions"},
		{"coordination.k8s.io", "v1", "leases"},
		{"events.k8s.io", "v1", "events"},
	}
}

// RecordResource returns the resource of the policies that record the requesters of stops.
func RecordResource() APIResource {
	return APIResource{"admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"}
}

// AccessRight is a permission: a verb on a resource.
type AccessRight struct {
	Verb     string
	Resource APIResource
}

func (r AccessRight) String() string {
	return r.Verb + " " + strings.TrimSuffix(r.Resource.Name+"."+r.Resource.Group, ".")
}

// NeededRights returns the permissions that the caller needs to install Torpor.
func NeededRights() []AccessRight {
	var rights []AccessRight
	for _, r := range NeededResources() {
		// The manager itself creates Leases and Events.
		if r.Name == "leases" || r.Name == "events" {
			continue
		}
		rights = append(rights, AccessRight{"create", r}, AccessRight{"patch", r})
	}
	return rights
}

// GrantingRights returns the permissions to create roles with permissions that the caller does not have. The roles of
// the manager may require them.
func GrantingRights() []AccessRight {
	roles := APIResource{"rbac.authorization.k8s.io", "v1", "clusterroles"}
	return []AccessRight{{"escalate", roles}, {"bind", roles}}
}

// WebhookClient is the client configuration of a webhook.
type WebhookClient struct {
	Name     string
	CABundle []byte
}

// AdmissionAnswer is the result of a dry-run request that calls an admission policy or webhook.
type AdmissionAnswer struct {
	// Kind is the kind of the requested object, and Admission the policy or webhook configuration that should
	// answer.
	Kind, Admission string
	// IsForApps is true for the webhook for apps, without which apps can be neither started nor stopped. All others
	// only record requesters.
	IsForApps bool
	// IsForbidden is true if the caller may not create the object, so that the policy or webhook was not called.
	IsForbidden bool
	// Problem describes what is missing in the response, or why there is no response. It is empty if the response is as
	// expected.
	Problem string
}

// ManagerDeployment describes the Deployments of the manager.
type ManagerDeployment struct {
	// Desired and Ready are the numbers of desired and of ready Pods.
	Desired, Ready int32
	// Problems are the reasons why Pods are not ready, such as "torpor-manager-x: ImagePullBackOff: …". They are
	// sorted.
	Problems []string
}

// PartLeader is a manager that leads a part of the controllers, or that was the last one to lead it.
type PartLeader struct {
	Part, Lease, Pod string
	// Name is the name of the Deployment, or of the Pod if the Deployment is unknown. Scope describes the controllers
	// and the namespaces.
	Name, Scope string
	Since       time.Time
	// EndedAt is the time at which the Lease expired without a renewal. It is zero if the manager leads.
	EndedAt time.Time
}

// Observed is everything that the decision depends on.
type Observed struct {
	// Version is the version of the API server, such as v1.36.3.
	Version string
	// Served are the resources of NeededResources and RecordResource that the API server serves.
	Served []APIResource
	// Definitions are the states of Torpor's CustomResourceDefinitions on the hub.
	Definitions []crds.Judgement
	// Namespace is the namespace of the requested installation. Acting is the namespace of the active installation. It
	// is empty if no installation is active.
	Namespace, Acting string
	// Leaders are the managers that lead the parts of the active installation. The list is empty if the leaders are
	// unknown.
	Leaders []PartLeader
	// Deployment describes the manager's Deployments in Namespace. It is nil if none exists.
	Deployment *ManagerDeployment
	// Missing lists the permissions that the caller lacks, of those that NeededRights and GrantingRights return.
	Missing []AccessRight
	// RecordPolicies are the bindings of the policies that record requesters, and RecordWebhooks the webhooks that
	// can be used instead.
	RecordPolicies []string
	RecordWebhooks []WebhookClient
	// Webhooks are the webhooks for apps. The list is empty if these webhooks are not installed.
	Webhooks []WebhookClient
	// Admission are the results of dry-run requests to the installed policies and webhooks.
	Admission []AdmissionAnswer
	// Now is the time of the local machine, and ServerTime the time of the API server, in whole seconds. Travel is
	// the duration of the request.
	Now, ServerTime time.Time
	Travel          time.Duration
}

// Judge returns the findings of all checks: at least one for each check, and several for a check with several
// problems.
func Judge(seen Observed) []Finding {
	return slices.Concat(
		judgeKubernetes(seen), judgeAPIs(seen), judgeRecord(seen), judgeDefinitions(seen),
		judgeInstallation(seen), judgeDeployment(seen), judgeRights(seen), judgeWebhooks(seen), judgeAdmission(seen), judgeClock(seen),
	)
}

// DescribeMissing returns what an installation still lacks to work. It returns "" if no check has failed, all Pods of
// the manager are ready, and the installation is active.
func DescribeMissing(seen Observed, findings []Finding) string {
	d := seen.Deployment
	switch at := slices.IndexFunc(findings, func(f Finding) bool { return f.State == Failed }); {
	case at >= 0:
		return string(findings[at].Check) + ": " + findings[at].Message
	case d == nil:
		return "no Deployment of the manager in namespace " + seen.Namespace
	case d.Desired == 0 || d.Ready < d.Desired:
		return fmt.Sprintf("%d of %d Pods of the manager are ready", d.Ready, d.Desired)
	case seen.Acting != seen.Namespace:
		return "the manager does not change objects yet, because it does not hold the Lease of the installation"
	}
	return ""
}

// IsReady reports whether no check has failed.
func IsReady(findings []Finding) bool {
	return !slices.ContainsFunc(findings, func(f Finding) bool { return f.State == Failed })
}

func isAtLeast(found, oldest string) (bool, error) {
	v, err := version.ParseGeneric(found)
	if err != nil {
		return false, fmt.Errorf("expected a version such as v1.36.3, found %q: %w", found, err)
	}
	return v.AtLeast(version.MustParseGeneric(oldest)), nil
}

func judgeKubernetes(seen Observed) []Finding {
	isNew, err := isAtLeast(seen.Version, OldestKubernetes)
	switch {
	case err != nil:
		return []Finding{{KubernetesCheck, Warned, err.Error(), "compare the version with docs/upgrade.md"}}
	case !isNew:
		return []Finding{{KubernetesCheck, Failed, fmt.Sprintf("expected Kubernetes %s or later, found %s", OldestKubernetes, seen.Version), "upgrade the hub; docs/upgrade.md lists the versions"}}
	}
	return []Finding{{KubernetesCheck, Passed, "Kubernetes " + seen.Version, ""}}
}

func judgeAPIs(seen Observed) []Finding {
	var missing []string
	for _, r := range NeededResources() {
		if !slices.Contains(seen.Served, r) {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		return []Finding{{APIsCheck, Failed, "expected the API server to serve " + strings.Join(missing, ", ") + "; found that it does not", "enable these APIs with --runtime-config, or upgrade the hub"}}
	}
	return []Finding{{APIsCheck, Passed, fmt.Sprintf("all %d kinds of objects that Torpor needs are served", len(NeededResources())), ""}}
}

func judgeRecord(seen Observed) []Finding {
	isServed, isInstalled := slices.Contains(seen.Served, RecordResource()), seen.Acting == seen.Namespace
	switch {
	case len(seen.RecordPolicies) > 0:
		return []Finding{{RecordCheck, Passed, "policies record the requesters of stops: " + strings.Join(seen.RecordPolicies, ", "), ""}}
	case len(seen.RecordWebhooks) > 0:
		return []Finding{judgeRecordWebhooks(seen)}
	case isServed && !isInstalled:
		return []Finding{{RecordCheck, Passed, "the API server can record the requesters of stops: kubectl apply -k config/record", ""}}
	case isServed:
		return []Finding{{
			RecordCheck, Warned, "the requesters of stops of clusters, databases and workloads are not recorded",
			"kubectl apply -k config/record",
		}}
	}
	return []Finding{{
		RecordCheck, Warned, "the requesters of stops of clusters, databases and workloads are not recorded: mutating admission policies are not served as v1, and there is no webhook",
		"set the chart's value record, or kubectl apply -k config/record/webhook and config/features/record; or upgrade the hub to Kubernetes " + RecordKubernetes,
	}}
}

// judgeRecordWebhooks warns of a webhook that the API server does not trust: requests succeed, but their requesters
// are not recorded.
func judgeRecordWebhooks(seen Observed) Finding {
	var names []string
	for _, w := range seen.RecordWebhooks {
		ends, err := findLastExpiry(w.CABundle)
		if err == nil && !ends.After(seen.Now) {
			err = fmt.Errorf("expected a caBundle that is valid, found one that expired at %s", ends.UTC().Format(time.RFC3339))
		}
		if err != nil {
			return Finding{
				RecordCheck, Warned, fmt.Sprintf("webhook %s: %v; the requesters of stops are not recorded", w.Name, err),
				"run the manager with --webhook-address and the permissions of config/features/record, and check its log",
			}
		}
		names = append(names, w.Name)
	}
	return Finding{RecordCheck, Passed, "a webhook records the requesters of stops while the manager is available: " + strings.Join(names, ", "), ""}
}

func judgeDefinitions(seen Observed) []Finding {
	counts := map[crds.State]int{}
	var foreign []Finding
	for _, d := range seen.Definitions {
		counts[d.State]++
		if d.State == crds.Foreign {
			foreign = append(foreign, Finding{DefinitionsCheck, Warned, d.String(), "no action required; see docs/install-beside-upstream.md"})
		}
	}
	found := Finding{DefinitionsCheck, Passed, fmt.Sprintf("%d definitions are Torpor's, %d are missing", counts[crds.Current], counts[crds.Absent]), ""}
	if counts[crds.OtherVersion] > 0 {
		found.State, found.Remedy = Warned, "torpor install"
		found.Message += fmt.Sprintf(", %d are of another version", counts[crds.OtherVersion])
	} else if counts[crds.Absent] > 0 {
		found.Remedy = "torpor install, now or later: the manager detects new CRDs while it runs"
	}
	return append([]Finding{found}, foreign...)
}

func judgeInstallation(seen Observed) []Finding {
	switch seen.Acting {
	case "":
		return []Finding{{InstallationCheck, Passed, "no installation of Torpor is active yet", ""}}
	case seen.Namespace:
		return append([]Finding{{InstallationCheck, Passed, "the installation in namespace " + seen.Acting + " is active", ""}}, judgeLeaders(seen.Leaders)...)
	}
	return []Finding{{
		InstallationCheck, Failed, fmt.Sprintf("expected the installation in namespace %s to be active, found that the installation in namespace %s is active",
			seen.Namespace, seen.Acting),
		"uninstall one of them: only one installation can be active",
	}}
}

// judgeLeaders reports which manager leads which part.
func judgeLeaders(leaders []PartLeader) []Finding {
	var found []Finding
	for _, l := range leaders {
		if l.EndedAt.IsZero() {
			found = append(found, Finding{InstallationCheck, Passed, fmt.Sprintf("%s leads the part %s with %s since %s (Pod %s)", l.Name, l.Part, l.Scope, l.Since.UTC().Format(time.RFC3339), l.Pod), ""})
			continue
		}
		found = append(found, Finding{
			InstallationCheck, Warned, fmt.Sprintf("no manager leads the part %s with %s: Pod %s has not renewed the Lease %s since %s", l.Part, l.Scope, l.Pod, l.Lease, l.EndedAt.UTC().Format(time.RFC3339)),
			"check whether the manager runs; if its Deployment was removed, delete the Lease",
		})
	}
	return found
}

func judgeDeployment(seen Observed) []Finding {
	d := seen.Deployment
	switch {
	case d == nil:
		return []Finding{{DeploymentCheck, Passed, "namespace " + seen.Namespace + " has no Deployment of the manager", ""}}
	case d.Ready >= d.Desired && d.Desired > 0:
		return []Finding{{DeploymentCheck, Passed, fmt.Sprintf("%d of %d Pods of the manager are ready", d.Ready, d.Desired), ""}}
	}
	found := Finding{
		DeploymentCheck, Warned, fmt.Sprintf("expected %d ready Pods of the manager, found %d", max(1, d.Desired), d.Ready),
		fmt.Sprintf("kubectl describe pods -n %s -l app.kubernetes.io/name=torpor", seen.Namespace),
	}
	if len(d.Problems) > 0 {
		found.Message += ": " + strings.Join(d.Problems, "; ")
	}
	if d.Ready == 0 {
		found.State = Failed
	}
	return []Finding{found}
}

func judgeRights(seen Observed) []Finding {
	var missing, granting []string
	for _, r := range seen.Missing {
		if slices.Contains(GrantingRights(), r) {
			granting = append(granting, r.String())
		} else {
			missing = append(missing, r.String())
		}
	}
	switch {
	case len(missing) > 0:
		return []Finding{{RightsCheck, Failed, "expected the permissions to install Torpor, found no permission to " + strings.Join(missing, ", "), "ask an admin of the hub to install Torpor"}}
	case len(granting) > 0:
		return []Finding{{
			RightsCheck, Warned, "found no permission to " + strings.Join(granting, ", ") + ", so you can only grant permissions that you hold yourself",
			"get every permission that config/rbac and config/features grant, or ask an admin of the hub",
		}}
	}
	return []Finding{{RightsCheck, Passed, "you may install and upgrade Torpor", ""}}
}

func judgeWebhooks(seen Observed) []Finding {
	if len(seen.Webhooks) == 0 {
		return []Finding{{WebhookCheck, Passed, "the admission webhook of apps is not installed", ""}}
	}
	soonest := seen.Now.AddDate(1, 0, 0)
	for _, w := range seen.Webhooks {
		ends, err := findLastExpiry(w.CABundle)
		if err != nil {
			return []Finding{{WebhookCheck, Failed, fmt.Sprintf("webhook %s: %v; apps can be neither started nor stopped", w.Name, err), "see /readyz/webhook-trust of the manager"}}
		}
		if ends.Before(soonest) {
			soonest = ends
		}
	}
	left := soonest.Sub(seen.Now)
	found := Finding{WebhookCheck, Passed, "the API server trusts the admission webhook of apps until " + soonest.UTC().Format(time.RFC3339), ""}
	switch {
	case left <= 0:
		found.State, found.Message = Failed, "expected a caBundle that is valid, found one that expired at "+soonest.UTC().Format(time.RFC3339)
	case left < shortestValidity:
		found.State = Warned
	}
	if found.State != Passed {
		found.Remedy = "the manager renews its certificate when a third of the validity remains: check its log; if another controller issues the certificate, check that controller"
	}
	return []Finding{found}
}

func judgeAdmission(seen Observed) []Finding {
	var answered, unknown []string
	for _, a := range seen.Admission {
		text := fmt.Sprintf("%s by %s", a.Kind, a.Admission)
		switch {
		case a.Problem != "" && a.IsForApps:
			return []Finding{{
				AdmissionCheck, Failed, fmt.Sprintf("expected %s to answer a dry-run request that creates a %s: %s; apps can be neither started nor stopped", a.Admission, a.Kind, a.Problem),
				"kubectl get endpoints torpor-webhook -n " + seen.Namespace + ", and check the manager's log",
			}}
		case a.Problem != "":
			return []Finding{{
				AdmissionCheck, Warned, fmt.Sprintf("expected %s to record the requester of a dry-run request that creates a %s: %s", a.Admission, a.Kind, a.Problem),
				"the requesters of stops are not recorded; see docs/record.md",
			}}
		case a.IsForbidden:
			unknown = append(unknown, a.Kind)
		default:
			answered = append(answered, text)
		}
	}
	switch {
	case len(unknown) > 0:
		return []Finding{{
			AdmissionCheck, Warned, "not checked: found no permission to create a " + strings.Join(unknown, ", a ") + ", which a dry-run request needs",
			"check as a user with this permission",
		}}
	case len(answered) == 0:
		return []Finding{{AdmissionCheck, Passed, "no admission policy and no webhook of Torpor is installed", ""}}
	}
	return []Finding{{AdmissionCheck, Passed, "dry-run requests reach their admission: " + strings.Join(answered, ", "), ""}}
}

// findLastExpiry returns when the last certificate of a bundle expires. A bundle contains two certificates while a
// CA is being replaced.
func findLastExpiry(bundle []byte) (last time.Time, err error) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return last, fmt.Errorf("expected a certificate in the caBundle, found none: %w", err)
		}
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	if last.IsZero() {
		if len(bundle) == 0 {
			return last, errors.New("expected a certificate in the caBundle, found an empty caBundle")
		}
		return last, fmt.Errorf("expected a certificate in the caBundle, found %d bytes without one", len(bundle))
	}
	return last, nil
}

func judgeClock(seen Observed) []Finding {
	if seen.ServerTime.IsZero() {
		return []Finding{{ClockCheck, Warned, "the response from the API server has no date", "compare the clocks of the API server and of this machine by hand"}}
	}
	// The Date header has whole seconds, and the request took some time.
	skew := seen.Now.Sub(seen.ServerTime).Abs()
	skew = max(0, skew-seen.Travel-time.Second)
	found := Finding{ClockCheck, Passed, fmt.Sprintf("the clocks of the API server and of this machine agree within %s", bearableSkew), ""}
	if skew > bearableSkew {
		found.State, found.Remedy = Warned, "synchronize both clocks with one time source: the ends of stops, Leases and certificates depend on them"
		found.Message = fmt.Sprintf("the clocks of the API server and of this machine are %s apart", skew.Round(time.Second))
	}
	if skew > harmfulSkew {
		found.State = Failed
	}
	return []Finding{found}
}
