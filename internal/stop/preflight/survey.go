// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// maxObjects is the maximum number of objects that a finding lists.
	maxObjects = 3
	// maxNameBytes is the maximum length of a Kubernetes name with a namespace.
	maxNameBytes = 2*253 + 1
	// MaxItemBytes is the size above which objects are skipped. The objects that a survey needs are smaller.
	MaxItemBytes = 256 << 10
	// maxServices is the maximum number of Services of webhooks that are read.
	maxServices = 20
	// namespacesList is the name of the list that shows whether the cluster is an OpenShift cluster.
	namespacesList = "Namespaces"
)

// SurveyList is a list of objects that is read from a cluster for a survey.
type SurveyList struct {
	// Name is shown to users.
	Name string
	// Path is the path of the list, and Selector is the label selector of the relevant objects. NextPath, if set, is the
	// path in another version of the API, which is read if Path is not served.
	Path, NextPath, Selector string
	// isOfOpenShift is true if only OpenShift serves the list.
	isOfOpenShift bool
	// codes are the codes of the findings that the list may yield.
	codes []string
	add   func(*Survey, []byte) error
}

// Lists returns the lists that are read from a cluster, in the order in which to read them: namespaces after the
// webhooks whose selectors refer to them.
func Lists() []SurveyList {
	const admission, nodes = "/apis/admissionregistration.k8s.io/v1/", "/api/v1/nodes"
	webhooks, quorum := []string{torporv1alpha1.WebhookBlocksWakeUpFinding}, []string{torporv1alpha1.EtcdQuorumSmallFinding}
	return append([]SurveyList{
		{Name: "ValidatingWebhookConfigurations", Path: admission + "validatingwebhookconfigurations", codes: webhooks, add: addWebhooks},
		{Name: "MutatingWebhookConfigurations", Path: admission + "mutatingwebhookconfigurations", codes: webhooks, add: addWebhooks},
		{Name: namespacesList, Path: "/api/v1/namespaces", codes: append(webhooks, torporv1alpha1.FinalizersPendingFinding, torporv1alpha1.ClusterTooYoungFinding), add: addNamespace},
		{Name: "PodDisruptionBudgets", Path: "/apis/policy/v1/poddisruptionbudgets", codes: []string{torporv1alpha1.EvictionForbiddenFinding}, add: addBudget},
		{Name: "CronJobs", Path: "/apis/batch/v1/cronjobs", codes: []string{torporv1alpha1.CronJobsMissStartsFinding}, add: addCronJob},
		{Name: "PersistentVolumes", Path: "/api/v1/persistentvolumes", codes: []string{torporv1alpha1.VolumesLocalFinding}, add: addVolume},
		{Name: "VolumeAttachments", Path: "/apis/storage.k8s.io/v1/volumeattachments", codes: []string{torporv1alpha1.VolumesNotDetachableFinding}, add: addAttachment},
		{Name: "Nodes of the control plane", Path: nodes, Selector: "node-role.kubernetes.io/control-plane", codes: quorum, add: addControlPlaneNode},
		{Name: "Nodes that are masters", Path: nodes, Selector: "node-role.kubernetes.io/master", codes: quorum, add: addControlPlaneNode},
	}, machineLists()...)
}

// Paths returns the paths of the list in order of preference. Only the first path that the API server serves is used.
func (l SurveyList) Paths() []string {
	if l.NextPath == "" {
		return []string{l.Path}
	}
	return []string{l.Path, l.NextPath}
}

// Skips reports whether a list need not be read, because only OpenShift serves it and the cluster is not an OpenShift
// cluster.
func (s *Survey) Skips(l SurveyList) bool {
	return l.isOfOpenShift && !s.isOpenShift && !slices.Contains(s.unread, namespacesList)
}

// SignerPath is the path of the ConfigMap in which every API server publishes the certificate authorities that it
// trusts, including the signer of the kubelets' certificates.
const SignerPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

// Survey collects the findings of a cluster. It evaluates the items of the lists one by one, without storing them.
type Survey struct {
	// now is the current time by the cluster's own clock.
	now          time.Time
	found        map[string]*findingTally
	webhooks     []webhookAtRisk
	namespaces   map[string]map[string]string
	services     map[string]bool
	controlPlane map[string]bool
	isOpenShift  bool
	// hasClusterAutoscaler is true if a ClusterAutoscaler of OpenShift exists.
	hasClusterAutoscaler bool

	bornAt      time.Time
	wakeBy      time.Time
	unread      []string
	unreadCodes map[string]bool
	// isCutShort is true if another survey may read more: the time ran out before everything was read, or a server
	// failed.
	isCutShort bool
}

// findingTally counts the affected objects of one code.
type findingTally struct {
	count   int32
	objects []talliedObject
}

type talliedObject struct {
	name  string
	after time.Duration
}

// NewSurvey returns an empty survey of a cluster. now is the current time by the cluster's clock.
func NewSurvey(now time.Time) *Survey {
	return &Survey{
		now: now, found: map[string]*findingTally{}, namespaces: map[string]map[string]string{}, services: map[string]bool{},
		controlPlane: map[string]bool{}, unreadCodes: map[string]bool{},
	}
}

// AddItem evaluates one item of a list. An item that is too large or cannot be decoded is skipped.
func (s *Survey) AddItem(l SurveyList, item []byte) {
	if len(item) <= MaxItemBytes {
		_ = l.add(s, item) // A malformed object yields no finding.
	}
}

// SkipList records that a list could not be read.
func (s *Survey) SkipList(l SurveyList) {
	s.unread = append(s.unread, l.Name)
	for _, code := range l.codes {
		s.unreadCodes[code] = true
	}
}

// NoteCut records that the survey is incomplete for a temporary reason.
func (s *Survey) NoteCut() { s.isCutShort = true }

// IsCutShort reports whether the survey is incomplete for a temporary reason.
func (s *Survey) IsCutShort() bool { return s.isCutShort }

// note adds an object to the finding with this code. after is the length of the shortest stop that affects the object.
func (s *Survey) note(code, name string, after time.Duration) {
	t := s.found[code]
	if t == nil {
		t = &findingTally{}
		s.found[code] = t
	}
	t.add(name, after)
}

// add counts an object, and records its name if it is among the first maxObjects. Objects that a shorter stop affects
// come first; objects with the same duration keep the order of the calls.
func (t *findingTally) add(name string, after time.Duration) {
	t.count++
	if !isPrintable(name) {
		return
	}
	t.objects = append(t.objects, talliedObject{name, after})
	slices.SortStableFunc(t.objects, func(a, b talliedObject) int { return int(a.after - b.after) })
	t.objects = t.objects[:min(len(t.objects), maxObjects)]
}

// isPrintable reports whether a name may be shown to users. Names come from a cluster that may be hostile.
func isPrintable(name string) bool {
	return name != "" && len(name) <= maxNameBytes && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// BuildCheck returns the result of the survey. Findings of lists that could not be read are copied from the previous
// check.
func (s *Survey) BuildCheck(before *hivev1.HibernationCheck) *hivev1.HibernationCheck {
	s.judgeWebhooks()
	s.judgeControlPlane()
	if s.isOpenShift && !s.bornAt.IsZero() && s.now.Sub(s.bornAt) < youngAge {
		s.note(torporv1alpha1.ClusterTooYoungFinding, "", 0)
	}
	slices.Sort(s.unread)
	check := &hivev1.HibernationCheck{WakeBy: nextWakeBy(before, s.wakeBy), Unread: s.unread}
	for _, code := range slices.Sorted(maps.Keys(s.found)) {
		if !s.unreadCodes[code] {
			check.Findings = append(check.Findings, s.found[code].finding(code))
		}
	}
	if before != nil {
		for _, f := range before.Findings {
			if s.unreadCodes[f.Code] {
				check.Findings = append(check.Findings, f)
			}
		}
	}
	slices.SortFunc(check.Findings, func(a, b torporv1alpha1.StopFinding) int { return strings.Compare(a.Code, b.Code) })
	return check
}

func (t *findingTally) finding(code string) torporv1alpha1.StopFinding {
	f := torporv1alpha1.StopFinding{Code: code, Count: t.count}
	for _, o := range t.objects {
		f.Objects = append(f.Objects, o.name)
	}
	if len(t.objects) > 0 && t.objects[0].after > 0 {
		f.After = &metav1.Duration{Duration: t.objects[0].after}
	}
	return f
}

// objectName holds the metadata of an item that the survey needs.
type objectName struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	Labels            map[string]string `json:"labels"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
}

func (o objectName) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

func decode(item []byte, into any) error {
	if err := json.Unmarshal(item, into); err != nil {
		return fmt.Errorf("decode an item: %w", err)
	}
	return nil
}
