// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/admin/crds"
)

func now() time.Time { return time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC) }

// bundleUntil returns a CA certificate that expires at a time.
func bundleUntil(t *testing.T, ends time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.AddDate(-1, 0, 0), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestJudge(t *testing.T) {
	definition := func(state crds.State) crds.Judgement {
		return crds.Judgement{Name: "clusterdeployments.hive.openshift.io", State: state, Managers: []string{"hive-operator"}, Lacks: []string{"status.stops"}}
	}
	needed := NeededRights()
	for name, row := range map[string]struct {
		change func(*Observed)
		check  Check
		want   CheckState
		says   string
	}{
		"a Kubernetes version before 1.33 fails":                  {func(o *Observed) { o.Version = "v1.32.9" }, KubernetesCheck, Failed, "1.33 or later, found v1.32.9"},
		"the oldest supported Kubernetes passes":                  {func(o *Observed) { o.Version = "v1.33.0-eks-1a2b" }, KubernetesCheck, Passed, "v1.33.0-eks-1a2b"},
		"a Kubernetes version that cannot be parsed warns":        {func(o *Observed) { o.Version = "main" }, KubernetesCheck, Warned, `found "main"`},
		"a resource that the API server does not serve fails":     {func(o *Observed) { o.Served = o.Served[1:] }, APIsCheck, Failed, "v1 namespaces"},
		"a hub without mutating policies warns":                   {func(o *Observed) { o.Served = NeededResources() }, RecordCheck, Warned, "there is no webhook"},
		"an active installation without recording policies warns": {func(o *Observed) { o.Acting = o.Namespace }, RecordCheck, Warned, "are not recorded"},
		"installed recording policies pass and are named":         {func(o *Observed) { o.RecordPolicies = []string{"torpor-mysql-record"} }, RecordCheck, Passed, "policies record the requesters of stops: torpor-mysql-record"},
		"a trusted recording webhook without policies passes": {func(o *Observed) {
			o.Served, o.RecordWebhooks = NeededResources(), []WebhookClient{{Name: "torpor-mysql-record", CABundle: bundleUntil(t, now().AddDate(0, 1, 0))}}
		}, RecordCheck, Passed, "a webhook records the requesters of stops while the manager is available: torpor-mysql-record"},
		"a recording webhook without a caBundle warns": {func(o *Observed) {
			o.Served, o.RecordWebhooks = NeededResources(), []WebhookClient{{Name: "torpor-mysql-record"}}
		}, RecordCheck, Warned, "webhook torpor-mysql-record: expected a certificate in the caBundle, found an empty caBundle; the requesters of stops are not recorded"},
		"a recording webhook with an expired CA certificate warns": {func(o *Observed) {
			o.RecordWebhooks = []WebhookClient{{CABundle: bundleUntil(t, now().Add(-time.Hour))}}
		}, RecordCheck, Warned, "found one that expired at 2026-11-24T11:00:00Z"},
		"CRDs that are not installed pass": {func(o *Observed) { o.Definitions = []crds.Judgement{definition(crds.Absent)} }, DefinitionsCheck, Passed, "1 are missing"},
		"a CRD of another version warns":   {func(o *Observed) { o.Definitions = []crds.Judgement{definition(crds.OtherVersion)} }, DefinitionsCheck, Warned, "1 are of another version"},
		"a CRD of another project warns and names its field manager": {
			func(o *Observed) { o.Definitions = []crds.Judgement{definition(crds.Foreign)} }, DefinitionsCheck, Warned,
			"another project's, written by hive-operator; not changed; without Torpor's fields status.stops",
		},
		"the active installation passes": {func(o *Observed) { o.Acting, o.RecordPolicies = "torpor-system", []string{"a"} }, InstallationCheck, Passed, "the installation in namespace torpor-system is active"},
		"the leaders of parts pass, and are named": {func(o *Observed) {
			o.Acting, o.RecordPolicies = "torpor-system", []string{"a"}
			o.Leaders = []PartLeader{{Part: "apps", Pod: "torpor-apps-5f7d8b9c4d-zzzzz", Name: "torpor-apps", Since: now(), Scope: "the controllers lrp in the namespaces a"}}
		}, InstallationCheck, Passed, "torpor-apps leads the part apps with the controllers lrp in the namespaces a since 2026-11-24T12:00:00Z (Pod torpor-apps-5f7d8b9c4d-zzzzz)"},
		"a part without a leader warns": {func(o *Observed) {
			o.Acting, o.RecordPolicies = "torpor-system", []string{"a"}
			o.Leaders = []PartLeader{{Part: "apps", Lease: "torpor-apps", Pod: "laptop", Scope: "unknown controllers", EndedAt: now()}}
		}, InstallationCheck, Warned, "no manager leads the part apps with unknown controllers: Pod laptop has not renewed the Lease torpor-apps since 2026-11-24T12:00:00Z"},
		"an active installation in another namespace fails": {func(o *Observed) { o.Acting = "elsewhere" }, InstallationCheck, Failed, "the installation in namespace elsewhere is active"},
		"a ready Deployment passes":                         {func(o *Observed) { o.Deployment = &ManagerDeployment{Desired: 2, Ready: 2} }, DeploymentCheck, Passed, "2 of 2 Pods"},
		"a Deployment without a ready Pod fails with the Pod's reason": {func(o *Observed) {
			o.Deployment = &ManagerDeployment{Desired: 2, Problems: []string{"torpor-manager-a: ImagePullBackOff: not found"}}
		}, DeploymentCheck, Failed, "expected 2 ready Pods of the manager, found 0: torpor-manager-a: ImagePullBackOff: not found"},
		"a Deployment with one ready Pod of two warns":           {func(o *Observed) { o.Deployment = &ManagerDeployment{Desired: 2, Ready: 1} }, DeploymentCheck, Warned, "found 1"},
		"a Deployment that is scaled to zero fails":              {func(o *Observed) { o.Deployment = &ManagerDeployment{} }, DeploymentCheck, Failed, "expected 1 ready Pods"},
		"a missing permission fails and is named":                {func(o *Observed) { o.Missing = []AccessRight{needed[0], GrantingRights()[0]} }, RightsCheck, Failed, "no permission to create namespaces"},
		"missing permissions to grant permissions warn":          {func(o *Observed) { o.Missing = GrantingRights() }, RightsCheck, Warned, "escalate clusterroles.rbac.authorization.k8s.io"},
		"an app webhook without a caBundle fails":                {func(o *Observed) { o.Webhooks = []WebhookClient{{Name: "mutate"}} }, WebhookCheck, Failed, "found an empty caBundle"},
		"an app webhook with a malformed caBundle fails":         {func(o *Observed) { o.Webhooks = []WebhookClient{{Name: "mutate", CABundle: []byte("x")}} }, WebhookCheck, Failed, "found 1 bytes"},
		"an app webhook with an expired caBundle fails":          {func(o *Observed) { o.Webhooks = []WebhookClient{{CABundle: bundleUntil(t, now().Add(-time.Hour))}} }, WebhookCheck, Failed, "expired at 2026-11-24T11:00:00Z"},
		"an app webhook whose caBundle expires in an hour warns": {func(o *Observed) { o.Webhooks = []WebhookClient{{CABundle: bundleUntil(t, now().Add(time.Hour))}} }, WebhookCheck, Warned, "2026-11-24T13:00:00Z"},
		"an app webhook with an expired and a valid CA certificate passes": {func(o *Observed) {
			o.Webhooks = []WebhookClient{{CABundle: slices.Concat(bundleUntil(t, now().Add(-time.Hour)), bundleUntil(t, now().AddDate(0, 1, 0)))}}
		}, WebhookCheck, Passed, "2026-12-24"},
		"answered dry-run requests pass, and the message names the policy and the webhook that answered": {func(o *Observed) {
			o.Admission = []AdmissionAnswer{{Kind: "Deployment", Admission: "torpor-workloads-record"}, {Kind: "CFApp", Admission: "torpor", IsForApps: true}}
		}, AdmissionCheck, Passed, "dry-run requests reach their admission: Deployment by torpor-workloads-record, CFApp by torpor"},
		"a policy that records no requester of a dry-run request warns": {func(o *Observed) {
			o.Admission = []AdmissionAnswer{{Kind: "Deployment", Admission: "torpor-workloads-record", Problem: "found no annotation"}}
		}, AdmissionCheck, Warned, "expected torpor-workloads-record to record the requester of a dry-run request that creates a Deployment: found no annotation"},
		"an app webhook that does not answer a dry-run request fails": {func(o *Observed) {
			o.Admission = []AdmissionAnswer{{Kind: "CFApp", Admission: "torpor", IsForApps: true, Problem: "failed calling webhook"}}
		}, AdmissionCheck, Failed, "expected torpor to answer a dry-run request that creates a CFApp: failed calling webhook; apps can be neither started nor stopped"},
		"a dry-run request that is forbidden warns": {func(o *Observed) {
			o.Admission = []AdmissionAnswer{{Kind: "CFApp", Admission: "torpor", IsForApps: true, IsForbidden: true}}
		}, AdmissionCheck, Warned, "found no permission to create a CFApp"},
		"a clock skew within the precision of the Date header passes": {func(o *Observed) { o.ServerTime = now().Add(-5900 * time.Millisecond) }, ClockCheck, Passed, "agree"},
		"a slow response does not count as a clock skew":              {func(o *Observed) { o.ServerTime = now().Add(-20 * time.Second); o.Travel = 15 * time.Second }, ClockCheck, Passed, "agree"},
		"a clock skew of 20 seconds warns":                            {func(o *Observed) { o.ServerTime = now().Add(21 * time.Second) }, ClockCheck, Warned, "20s apart"},
		"a clock skew of three minutes fails":                         {func(o *Observed) { o.ServerTime = now().Add(-3 * time.Minute) }, ClockCheck, Failed, "2m59s apart"},
		"a response without a Date header warns":                      {func(o *Observed) { o.ServerTime = time.Time{} }, ClockCheck, Warned, "has no date"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{
				Version: "v1.36.3", Served: append(NeededResources(), RecordResource()), Namespace: "torpor-system", Now: now(), ServerTime: now(),
				Definitions: []crds.Judgement{{Name: "cfdeployments.torpor.dev", State: crds.Current}},
			}
			if ready := Judge(seen); !IsReady(ready) || len(ready) != len(ListChecks()) {
				t.Fatalf("expected one finding of each check and nothing that failed, found %+v", ready)
			}
			row.change(&seen)
			findings := Judge(seen)
			if i := slices.IndexFunc(findings, func(f Finding) bool {
				return f.Check == row.check && f.State == row.want && strings.Contains(f.Message, row.says)
			}); i < 0 || IsReady(findings) != (row.want != Failed) {
				t.Errorf("expected %s to be %s and to say %q, found %+v", row.check, row.want, row.says, findings)
			}
			for _, f := range findings {
				if f.Check != row.check && f.State != Passed {
					t.Errorf("expected nothing else, found %+v", f)
				}
				if f.State != Passed && f.Remedy == "" {
					t.Errorf("expected a remedy, found %+v", f)
				}
			}
		})
	}
}

func TestEveryCheckIsInTheManual(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ListChecks() {
		if !strings.Contains(string(page), "\n| `"+string(c)+"` | ") {
			t.Errorf("expected a row of %s in docs/install.md, found none", c)
		}
	}
}
