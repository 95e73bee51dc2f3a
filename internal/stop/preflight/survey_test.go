// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func fixedTime() time.Time { return time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC) }

// items are the objects of a cluster, by the last element of the path of their list.
type items map[string][]string

func listNamed(t *testing.T, name string) SurveyList {
	t.Helper()
	lists := Lists()
	i := slices.IndexFunc(lists, func(l SurveyList) bool { return strings.HasSuffix(l.Path, "/"+name) })
	if i < 0 {
		t.Fatalf("expected a list of %s, found none", name)
	}
	return lists[i]
}

func surveyOf(found items) *Survey {
	s := NewSurvey(fixedTime())
	for _, l := range Lists() {
		for _, item := range found[l.Path[strings.LastIndex(l.Path, "/")+1:]] {
			s.AddItem(l, []byte(item))
		}
	}
	return s
}

func webhookConfig(t *testing.T, edit string) string {
	t.Helper()
	w := map[string]any{
		"failurePolicy": "Fail", "clientConfig": map[string]any{"service": map[string]any{"namespace": "policy", "name": "server"}},
		"rules": []any{map[string]any{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "resources": []string{"pods"}}},
	}
	var edits map[string]any
	if err := json.Unmarshal([]byte(edit), &edits); err != nil {
		t.Fatalf("expected JSON, found %s: %v", edit, err)
	}
	maps.Copy(w, edits)
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "guard"}, "webhooks": []any{w}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func systemNamespaces() []string {
	const created = `"creationTimestamp":"2026-01-01T00:00:00Z"`
	var all []string
	for _, name := range []string{systemNamespace, leaseNamespace, "policy"} {
		all = append(all, fmt.Sprintf(`{"metadata":{"name":%[1]q,"labels":{"kubernetes.io/metadata.name":%[1]q},%[2]s}}`, name, created))
	}
	return all
}

func TestWebhooksThatBlockTheWakeUp(t *testing.T) {
	const leases, everything = `"rules":[{"operations":["UPDATE"],"apiGroups":["coordination.k8s.io"],"resources":["leases"]}]`, `"rules":[{"operations":["*"],"apiGroups":["*"],"resources":["*/*"]}]`
	const elsewhere = `"namespaceSelector":{"matchLabels":{"team":"a"}}`
	const notTheSystem = `"namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-node-lease"]}]}`
	const noneOfThese = `"namespaceSelector":{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-node-lease","policy"]}]}`
	for name, row := range map[string]struct {
		edit string
		want bool
	}{
		"a webhook for Pods of all namespaces blocks":                                               {`{}`, true},
		"a webhook without a failure policy blocks":                                                 {`{"failurePolicy":""}`, true},
		"a webhook with failurePolicy Ignore blocks nothing":                                        {`{"failurePolicy":"Ignore"}`, false},
		"a webhook with a URL outside the cluster blocks nothing":                                   {`{"clientConfig":{"url":"https://policy.example.com"}}`, false},
		"a webhook for leases blocks":                                                               {`{` + leases + `}`, true},
		"a webhook for deletions blocks nothing":                                                    {`{"rules":[{"operations":["DELETE"],"apiGroups":[""],"resources":["pods"]}]}`, false},
		"a webhook for Deployments blocks nothing":                                                  {`{"rules":[{"operations":["CREATE"],"apiGroups":["apps"],"resources":["deployments"]}]}`, false},
		"a webhook for all subresources of nodes blocks":                                            {`{"rules":[{"operations":["UPDATE"],"apiGroups":[""],"resources":["nodes/*"]}]}`, true},
		"a webhook for the status of all resources blocks":                                          {`{"rules":[{"operations":["UPDATE"],"apiGroups":["*"],"resources":["*/status"]}]}`, true},
		"a webhook for all resources, but no subresources, blocks":                                  {`{"rules":[{"operations":["CREATE"],"apiGroups":["*"],"resources":["*"]}]}`, true},
		"a webhook that selects neither the system namespaces nor its own namespace blocks nothing": {`{` + elsewhere + `}`, false},
		"a webhook that excludes the system namespaces, but not its own namespace, blocks":          {`{` + notTheSystem + `}`, true},
		"a webhook that excludes the system namespaces and its own namespace blocks nothing":        {`{` + noneOfThese + `}`, false},
		"a webhook for leases outside the system namespaces blocks nothing":                         {`{` + leases + `,` + notTheSystem + `}`, false},
		"a webhook for nodes blocks in spite of a namespace selector":                               {`{` + everything + `,` + noneOfThese + `}`, true},
		"a webhook that selects objects by labels is assumed to block nothing":                      {`{"objectSelector":{"matchLabels":{"inject":"yes"}}}`, false},
		"a webhook with an empty object selector blocks":                                            {`{"objectSelector":{}}`, true},
		"a webhook with an invalid selector is ignored":                                             {`{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}`, false},
		"a webhook for approvals of certificate requests blocks":                                    {`{"rules":[{"operations":["UPDATE"],"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests/approval"]}]}`, true},
		"a webhook for new tokens of service accounts blocks":                                       {`{"rules":[{"operations":["CREATE"],"apiGroups":[""],"resources":["serviceaccounts/token"]}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, list := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
				s := surveyOf(items{list: {webhookConfig(t, row.edit)}, "namespaces": systemNamespaces()})
				var want []torporv1alpha1.StopFinding
				if row.want {
					want = []torporv1alpha1.StopFinding{{Code: torporv1alpha1.WebhookBlocksWakeUpFinding, Count: 1, Objects: []string{"guard"}}}
				}
				if diff := cmp.Diff(want, s.BuildCheck(nil).Findings); diff != "" {
					t.Errorf("%s (-want +got):\n%s", list, diff)
				}
			}
		})
	}
}

func TestWebhooksWithAnExternalServiceBlockNothing(t *testing.T) {
	found := items{"validatingwebhookconfigurations": {webhookConfig(t, `{}`)}, "namespaces": systemNamespaces()}
	for service, want := range map[string]int{
		`{"spec":{"selector":{"app":"guard"}}}`: 1, `{"spec":{"externalName":"policy.example.com"}}`: 0, `nonsense`: 1,
	} {
		s := surveyOf(found)
		if diff := cmp.Diff([]string{"policy/server"}, s.Services()); diff != "" {
			t.Fatalf("services (-want +got):\n%s", diff)
		}
		s.AddService("policy/server", []byte(service))
		if got := s.BuildCheck(nil).Findings; len(got) != want {
			t.Errorf("%s: expected %d findings, found %+v", service, want, got)
		}
	}
}

func TestFindingsOfAList(t *testing.T) {
	for name, row := range map[string]struct {
		found items
		want  *torporv1alpha1.StopFinding
	}{
		"a PodDisruptionBudget that allows no disruption is a finding": {
			items{"poddisruptionbudgets": {`{"metadata":{"name":"b","namespace":"n"},"status":{"expectedPods":3,"disruptionsAllowed":0}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.EvictionForbiddenFinding, Count: 1, Objects: []string{"n/b"}},
		},
		"a PodDisruptionBudget without Pods has no finding": {items{"poddisruptionbudgets": {`{"metadata":{"name":"b"},"status":{"disruptionsAllowed":0}}`}}, nil},
		"a finding names the most frequent CronJobs, and the shortest stop that affects one of them": {
			items{"cronjobs": {
				`{"metadata":{"name":"hourly","namespace":"n"},"spec":{"schedule":"0 * * * *"}}`, `{"metadata":{"name":"often","namespace":"n"},"spec":{"schedule":"*/5 * * * *"}}`,
				`{"metadata":{"name":"daily","namespace":"n"},"spec":{"schedule":"@daily"}}`, `{"metadata":{"name":"weekly","namespace":"n"},"spec":{"schedule":"@weekly"}}`,
			}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.CronJobsMissStartsFinding, Count: 4, Objects: []string{"n/often", "n/hourly", "n/daily"}, After: &metav1.Duration{Duration: 505 * time.Minute}},
		},
		"a suspended CronJob has no finding":                {items{"cronjobs": {`{"metadata":{"name":"a"},"spec":{"schedule":"* * * * *","suspend":true}}`}}, nil},
		"a CronJob with a starting deadline has no finding": {items{"cronjobs": {`{"metadata":{"name":"a"},"spec":{"schedule":"* * * * *","startingDeadlineSeconds":600}}`}}, nil},
		"a CronJob with an invalid schedule has no finding": {items{"cronjobs": {`{"metadata":{"name":"a"},"spec":{"schedule":"often"}}`, `{"metadata":{"name":"b"},"spec":{"schedule":"0 0 30 2 *"}}`}}, nil},
		"a volume on a machine's disk is a finding": {
			items{"persistentvolumes": {`{"metadata":{"name":"pv"},"spec":{"local":{"path":"/d"},"claimRef":{"namespace":"n","name":"data"}},"status":{"phase":"Bound"}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.VolumesLocalFinding, Count: 1, Objects: []string{"n/data"}},
		},
		"a volume without a claim has no finding": {items{"persistentvolumes": {`{"metadata":{"name":"pv"},"spec":{"hostPath":{}},"status":{"phase":"Available"}}`}}, nil},
		"a volume of a CSI driver has no finding": {items{"persistentvolumes": {`{"metadata":{"name":"pv"},"spec":{"csi":{},"claimRef":{"name":"d"}},"status":{"phase":"Bound"}}`}}, nil},
		"a volume that could not be detached is a finding": {
			items{"volumeattachments": {`{"metadata":{"name":"csi-1"},"status":{"detachError":{"message":"x"}}}`, `{"metadata":{"name":"csi-2"},"status":{"attached":true}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.VolumesNotDetachableFinding, Count: 1, Objects: []string{"csi-1"}},
		},
		"a namespace with pending finalizers is a finding": {
			items{"namespaces": {`{"metadata":{"name":"old","deletionTimestamp":"2026-11-01T00:00:00Z"}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.FinalizersPendingFinding, Count: 1, Objects: []string{"old"}},
		},
		"an OpenShift cluster that is less than a day old is a finding": {
			items{"namespaces": {`{"metadata":{"name":"kube-system","creationTimestamp":"2026-11-23T13:00:00Z"}}`, `{"metadata":{"name":"openshift-cluster-version"}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.ClusterTooYoungFinding, Count: 1},
		},
		"an OpenShift cluster that is a day old is not reported":          {items{"namespaces": {`{"metadata":{"name":"kube-system","creationTimestamp":"2026-11-23T12:00:00Z"}}`, `{"metadata":{"name":"openshift-cluster-version"}}`}}, nil},
		"a cluster without OpenShift that is an hour old is not reported": {items{"namespaces": {`{"metadata":{"name":"kube-system","creationTimestamp":"2026-11-24T11:00:00Z"}}`}}, nil},
		"a control plane of two nodes is a finding": {
			items{"nodes": {`{"metadata":{"name":"m1"}}`, `{"metadata":{"name":"m0"}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.EtcdQuorumSmallFinding, Count: 2, Objects: []string{"m0", "m1"}},
		},
		"the size of a control plane of three nodes is not reported": {items{"nodes": {`{"metadata":{"name":"m1"}}`, `{"metadata":{"name":"m0"}}`, `{"metadata":{"name":"m2"}}`}}, nil},
		"objects with invalid names are counted but not named": {
			items{"volumeattachments": {`{"metadata":{"name":"a\u001b[2J"},"status":{"detachError":{}}}`, `{"metadata":{"name":"` + strings.Repeat("a", 600) + `"},"status":{"detachError":{}}}`}},
			&torporv1alpha1.StopFinding{Code: torporv1alpha1.VolumesNotDetachableFinding, Count: 2},
		},
		"malformed objects are ignored": {items{"namespaces": {`[]`, `{"metadata":7}`}, "cronjobs": {`{"metadata":{"name":"a"},"spec":{"schedule":"* * * * *","x":"` + strings.Repeat("a", MaxItemBytes) + `"}}`}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var want []torporv1alpha1.StopFinding
			if row.want != nil {
				want = append(want, *row.want)
			}
			if diff := cmp.Diff(want, surveyOf(row.found).BuildCheck(nil).Findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFindingsOfUnreadListsAreKept(t *testing.T) {
	cronjob := torporv1alpha1.StopFinding{Code: torporv1alpha1.CronJobsMissStartsFinding, Count: 7, Objects: []string{"n/a"}}
	before := &hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{cronjob, {Code: torporv1alpha1.VolumesLocalFinding, Count: 1}}, WakeBy: new(metav1.NewTime(fixedTime()))}
	s := surveyOf(items{"cronjobs": {`{"metadata":{"name":"b"},"spec":{"schedule":"* * * * *"}}`}})
	s.SkipList(listNamed(t, "cronjobs"))
	want := &hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{cronjob}, Unread: []string{"CronJobs"}, WakeBy: before.WakeBy}
	if diff := cmp.Diff(want, s.BuildCheck(before)); diff != "" {
		t.Errorf("check (-want +got):\n%s", diff)
	}
}

// authority returns a CA certificate in PEM that is valid until a time.
func authority(t *testing.T, name string, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: fixedTime(), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestWhenACertificateExpiresFirst(t *testing.T) {
	day := func(n int) time.Time { return fixedTime().Add(time.Duration(n) * 24 * time.Hour) }
	signer := func(bundle ...string) string {
		text, err := json.Marshal(map[string]any{"data": map[string]string{"client-ca-file": strings.Join(bundle, "")}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, row := range map[string]struct {
		serving time.Time
		signer  string
		before  time.Time
		want    time.Time
	}{
		"API server's certificate expires first: wakeBy is its expiry":                         {day(20), signer(authority(t, "kubernetes", day(30))), time.Time{}, day(20)},
		"signer's certificate expires first: wakeBy is its expiry":                             {day(40), signer(authority(t, "kubernetes", day(30))), time.Time{}, day(30)},
		"renewed signer: wakeBy is the expiry of the new certificate":                          {day(40), signer(authority(t, "kube-csr-signer_@1", day(2)), authority(t, "kube-csr-signer_@2", day(32))), time.Time{}, day(32)},
		"other authorities in the signer's bundle: ignored":                                    {day(40), signer(authority(t, "admin-signer", day(99)), authority(t, "kube-csr-signer_@2", day(32))), time.Time{}, day(32)},
		"an invalid bundle of the signer is ignored":                                           {day(40), signer("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), time.Time{}, day(40)},
		"no known certificate: wakeBy is unset":                                                {time.Time{}, `{}`, time.Time{}, time.Time{}},
		"signer's bundle that cannot be read: wakeBy is kept":                                  {time.Time{}, `nonsense`, day(5), day(5)},
		"certificate of another API server that expires an hour later: wakeBy is kept":         {day(20).Add(time.Hour), `{}`, day(20), day(20)},
		"certificate of another API server that expires an hour earlier: wakeBy is its expiry": {day(20).Add(-time.Hour), `{}`, day(20), day(20).Add(-time.Hour)},
		"renewed certificate of the API server: wakeBy is its expiry":                          {day(44), `{}`, day(20), day(44)},
	} {
		t.Run(name, func(t *testing.T) {
			s, before := NewSurvey(fixedTime()), &hivev1.HibernationCheck{}
			if !row.before.IsZero() {
				before.WakeBy = new(metav1.NewTime(row.before))
			}
			s.AddServingCertificate(row.serving)
			s.AddSigner([]byte(row.signer))
			got := s.BuildCheck(before).WakeBy
			if row.want.IsZero() != (got == nil) || got != nil && !got.Time.Equal(row.want) {
				t.Errorf("expected %s, found %v", row.want, got)
			}
		})
	}
}

func TestServingExpiryIsThatOfTheLongestChain(t *testing.T) {
	until := func(n int) *x509.Certificate {
		return &x509.Certificate{NotAfter: fixedTime().Add(time.Duration(n) * time.Hour)}
	}
	got := ServingExpiry([][]*x509.Certificate{{until(9), until(1)}, {until(9), until(5)}, {}})
	if want := until(5).NotAfter; !got.Equal(want) {
		t.Errorf("expected %s, found %s", want, got)
	}
	if got := ServingExpiry(nil); !got.IsZero() {
		t.Errorf("expected no time of a server that was not verified, found %s", got)
	}
}
