// SPDX-License-Identifier: Apache-2.0

// Package preflight decides whether a hub is ready for Torpor. It is pure: internal/preflight/hub looks.
package preflight

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/torpor-dev/torpor/internal/install"
)

// CheckState is what is thought of one thing.
type CheckState string

// The states. A hub is ready if nothing has failed.
const (
	Passed CheckState = "ok"
	Warned CheckState = "warning"
	Failed CheckState = "failed"
)

// Check is the name of one thing that is looked at.
type Check string

// The checks, in the order in which they are reported.
const (
	// KubernetesCheck is the version of the API server.
	KubernetesCheck Check = "kubernetes"
	// APIsCheck is whether the API server serves what Torpor's own objects are made of.
	APIsCheck Check = "apis"
	// RecordCheck is what notes who stops things, or could.
	RecordCheck Check = "record"
	// DefinitionsCheck is whose the CustomResourceDefinitions are.
	DefinitionsCheck Check = "definitions"
	// InstallationCheck is whether another Torpor acts on the hub.
	InstallationCheck Check = "installation"
	// RightsCheck is whether whoever asks may install Torpor.
	RightsCheck Check = "rights"
	// WebhookCheck is the certificate by which the API server trusts the admission of apps.
	WebhookCheck Check = "webhook"
	// ClockCheck is how far the clocks of the API server and of this machine are apart.
	ClockCheck Check = "clock"
)

// ListChecks returns the checks in their order.
func ListChecks() []Check {
	return []Check{KubernetesCheck, APIsCheck, RecordCheck, DefinitionsCheck, InstallationCheck, RightsCheck, WebhookCheck, ClockCheck}
}

// Finding is what one check has found.
type Finding struct {
	Check   Check      `json:"check"`
	State   CheckState `json:"state"`
	Message string     `json:"message"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy,omitempty"`
}

const (
	// OldestKubernetes is the first version whose API server takes everything in config.
	OldestKubernetes = "1.33"
	// RecordKubernetes is the first version that serves mutating admission policies as v1.
	RecordKubernetes = "1.36"
	// Leases and certificates bear some seconds; past a minute a Lease is thought to be over while it is held.
	bearableSkew, harmfulSkew = 5 * time.Second, time.Minute
	// The manager renews its certificate long before.
	shortestValidity = 7 * 24 * time.Hour
)

// APIResource is one of an API group, in the words of a right.
type APIResource struct{ Group, Version, Name string }

func (r APIResource) String() string { return strings.Trim(r.Group+"/"+r.Version, "/") + " " + r.Name }

// NeededResources are what Torpor's own objects are made of.
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

// RecordResource is what the policies are made of that note who stops things.
func RecordResource() APIResource {
	return APIResource{"admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"}
}

// AccessRight is one that an installation needs.
type AccessRight struct {
	Verb     string
	Resource APIResource
}

func (r AccessRight) String() string {
	return r.Verb + " " + strings.TrimSuffix(r.Resource.Name+"."+r.Resource.Group, ".")
}

// NeededRights are those of whoever installs Torpor.
func NeededRights() []AccessRight {
	var rights []AccessRight
	for _, r := range NeededResources() {
		// These the manager makes by itself.
		if r.Name == "leases" || r.Name == "events" {
			continue
		}
		rights = append(rights, AccessRight{"create", r}, AccessRight{"patch", r})
	}
	return rights
}

// GrantingRights let somebody grant what they may not do themselves, as the roles of the manager do.
func GrantingRights() []AccessRight {
	roles := APIResource{"rbac.authorization.k8s.io", "v1", "clusterroles"}
	return []AccessRight{{"escalate", roles}, {"bind", roles}}
}

// WebhookClient is what the API server is told of the admission of apps.
type WebhookClient struct {
	Name     string
	CABundle []byte
}

// Observed is everything that the decision looks at.
type Observed struct {
	// Version is that of the API server, such as v1.36.3.
	Version string
	// Served are the resources of NeededResources and RecordResource that the API server serves.
	Served []APIResource
	// Definitions are Torpor's CustomResourceDefinitions.
	Definitions []install.Judgement
	// Namespace is that of the installation that is asked for, and Acting that of the one that acts; empty if none does.
	Namespace, Acting string
	// Missing are rights of NeededRights and GrantingRights that whoever asks has not.
	Missing []AccessRight
	// RecordPolicies are the bindings of the policies that note who stops things, and RecordWebhooks the configurations of the webhook that does.
	RecordPolicies []string
	RecordWebhooks []WebhookClient
	// Webhooks are those of the admission of apps, none if it is not installed.
	Webhooks []WebhookClient
	// Now is the time of this machine, and ServerTime that of the API server, in whole seconds; Travel is how long the answer took.
	Now, ServerTime time.Time
	Travel          time.Duration
}

// Judge returns a finding for each check, and several for what has several troubles.
func Judge(seen Observed) []Finding {
	return slices.Concat(
		judgeKubernetes(seen), judgeAPIs(seen), judgeRecord(seen), judgeDefinitions(seen),
		judgeInstallation(seen), judgeRights(seen), judgeWebhooks(seen), judgeClock(seen),
	)
}

// IsReady reports whether nothing has failed.
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
		return []Finding{{KubernetesCheck, Warned, err.Error(), "compare it with docs/upgrade.md"}}
	case !isNew:
		return []Finding{{KubernetesCheck, Failed, fmt.Sprintf("expected Kubernetes %s or later, found %s", OldestKubernetes, seen.Version), "upgrade the hub; docs/upgrade.md has the versions"}}
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
		return []Finding{{APIsCheck, Failed, "expected the API server to serve " + strings.Join(missing, ", ") + "; found that it does not", "switch them on with --runtime-config, or upgrade the hub"}}
	}
	return []Finding{{APIsCheck, Passed, fmt.Sprintf("all %d kinds of objects that Torpor is made of are served", len(NeededResources())), ""}}
}

func judgeRecord(seen Observed) []Finding {
	isServed, isInstalled := slices.Contains(seen.Served, RecordResource()), seen.Acting == seen.Namespace
	switch {
	case len(seen.RecordPolicies) > 0:
		return []Finding{{RecordCheck, Passed, "policies note who stops things: " + strings.Join(seen.RecordPolicies, ", "), ""}}
	case len(seen.RecordWebhooks) > 0:
		return []Finding{judgeRecordWebhooks(seen)}
	case isServed && !isInstalled:
		return []Finding{{RecordCheck, Passed, "the API server can note who stops things: kubectl apply -k config/record", ""}}
	case isServed:
		return []Finding{{RecordCheck, Warned, "nothing notes who stops clusters, databases and workloads, so it stays unknown", "kubectl apply -k config/record"}}
	}
	return []Finding{{
		RecordCheck, Warned, "nothing notes who stops clusters, databases and workloads, so it stays unknown: mutating admission policies are not served as v1, and there is no webhook",
		"the chart's value record, or kubectl apply -k config/record/webhook beside config/features/record; or upgrade the hub to Kubernetes " + RecordKubernetes,
	}}
}

// judgeRecordWebhooks tells of a webhook that is not believed: requests pass, and nobody is named.
func judgeRecordWebhooks(seen Observed) Finding {
	var names []string
	for _, w := range seen.RecordWebhooks {
		ends, err := findLastExpiry(w.CABundle)
		if err == nil && !ends.After(seen.Now) {
			err = fmt.Errorf("expected a caBundle that is valid, found one that ended at %s", ends.UTC().Format(time.RFC3339))
		}
		if err != nil {
			return Finding{
				RecordCheck, Warned, fmt.Sprintf("%s: %v; who stops something stays unknown", w.Name, err),
				"let the manager run with --webhook-address and the rights of config/features/record, and see its log",
			}
		}
		names = append(names, w.Name)
	}
	return Finding{RecordCheck, Passed, "a webhook notes who stops things while the manager answers: " + strings.Join(names, ", "), ""}
}

func judgeDefinitions(seen Observed) []Finding {
	counts := map[install.State]int{}
	var foreign []Finding
	for _, d := range seen.Definitions {
		counts[d.State]++
		if d.State == install.Foreign {
			foreign = append(foreign, Finding{DefinitionsCheck, Warned, d.String(), "nothing, or docs/install-beside-upstream.md"})
		}
	}
	found := Finding{DefinitionsCheck, Passed, fmt.Sprintf("%d are Torpor's, %d are missing", counts[install.Current], counts[install.Absent]), ""}
	if counts[install.Outdated] > 0 {
		found.State, found.Remedy = Warned, "torpor install"
		found.Message += fmt.Sprintf(", %d are of another version", counts[install.Outdated])
	} else if counts[install.Absent] > 0 {
		found.Remedy = "torpor install, now or later: the manager notices"
	}
	return append([]Finding{found}, foreign...)
}

func judgeInstallation(seen Observed) []Finding {
	switch seen.Acting {
	case "":
		return []Finding{{InstallationCheck, Passed, "no Torpor acts yet", ""}}
	case seen.Namespace:
		return []Finding{{InstallationCheck, Passed, "the Torpor of namespace " + seen.Acting + " acts", ""}}
	}
	return []Finding{{
		InstallationCheck, Failed, fmt.Sprintf("expected no other Torpor than that of namespace %s, found that the one of namespace %s acts", seen.Namespace, seen.Acting),
		"uninstall one of them: the second does nothing while the first acts",
	}}
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
		return []Finding{{RightsCheck, Failed, "expected the rights to install Torpor, found none to " + strings.Join(missing, ", "), "ask an admin of the hub to install it"}}
	case len(granting) > 0:
		return []Finding{{RightsCheck, Warned, "found no right to " + strings.Join(granting, ", ") + ", so that roles can only grant what you may do yourself", "have each right of config/rbac and config/features, or ask an admin of the hub"}}
	}
	return []Finding{{RightsCheck, Passed, "you may install and upgrade Torpor", ""}}
}

func judgeWebhooks(seen Observed) []Finding {
	if len(seen.Webhooks) == 0 {
		return []Finding{{WebhookCheck, Passed, "the admission of apps is not installed", ""}}
	}
	soonest := seen.Now.AddDate(1, 0, 0)
	for _, w := range seen.Webhooks {
		ends, err := findLastExpiry(w.CABundle)
		if err != nil {
			return []Finding{{WebhookCheck, Failed, fmt.Sprintf("%s: %v; apps can be neither started nor stopped", w.Name, err), "see /readyz/webhook-trust of the manager"}}
		}
		if ends.Before(soonest) {
			soonest = ends
		}
	}
	left := soonest.Sub(seen.Now)
	found := Finding{WebhookCheck, Passed, "the API server trusts the admission of apps until " + soonest.UTC().Format(time.RFC3339), ""}
	switch {
	case left <= 0:
		found.State, found.Message = Failed, "expected a caBundle that is valid, found one that ended at "+soonest.UTC().Format(time.RFC3339)
	case left < shortestValidity:
		found.State = Warned
	}
	if found.State != Passed {
		found.Remedy = "the manager renews it a week before: see its log, or whoever keeps the certificate instead"
	}
	return []Finding{found}
}

// findLastExpiry returns when nothing of a bundle is valid any more. While an authority is replaced there are two.
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
		return last, fmt.Errorf("expected a certificate in the caBundle, found %d bytes of something else", len(bundle))
	}
	return last, nil
}

func judgeClock(seen Observed) []Finding {
	if seen.ServerTime.IsZero() {
		return []Finding{{ClockCheck, Warned, "the API server did not say what time it is", "compare the clocks by hand"}}
	}
	// The header has whole seconds, and the answer travelled.
	skew := seen.Now.Sub(seen.ServerTime).Abs()
	skew = max(0, skew-seen.Travel-time.Second)
	found := Finding{ClockCheck, Passed, fmt.Sprintf("the clocks of the API server and of this machine agree within %s", bearableSkew), ""}
	if skew > bearableSkew {
		found.State, found.Remedy = Warned, "let both take their time from the same source: ends of stops, Leases and certificates go by it"
		found.Message = fmt.Sprintf("the clocks of the API server and of this machine are %s apart", skew.Round(time.Second))
	}
	if skew > harmfulSkew {
		found.State = Failed
	}
	return []Finding{found}
}
