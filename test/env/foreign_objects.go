// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// ForeignObject is an object of a kind for which there is an example StopAdapter, with statuses as the kind's own
// controller writes them.
type ForeignObject struct {
	// Example is the file in examples/stopadapters.
	Example, object string
	// Stopping is a status that is neither asleep nor awake; empty if a stop takes effect immediately.
	Stopping, Asleep, Awake string
}

func foreignCondition(kind, status, reason string) string {
	return `{"conditions": [{"type": "` + kind + `", "status": "` + status + `", "reason": "` + reason + `"}]}`
}

// ListForeignObjects returns one object for each example StopAdapter.
func ListForeignObjects() []ForeignObject {
	const fluxReady = `{"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]}`
	synced, ready, unpaused := foreignCondition("Synced", "True", "ReconcileSuccess"), foreignCondition("Ready", "True", ""), foreignCondition("Paused", "False", "NotPaused")
	return []ForeignObject{
		{"flux-kustomization", `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, spec: {interval: 10m, prune: true, path: ./}}`, "", `{}`, fluxReady},
		{"flux-helmrelease", `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, spec: {interval: 10m, suspend: false}}`, "", `{}`, fluxReady},
		{"argocd-application", `{apiVersion: argoproj.io/v1alpha1, kind: Application, spec: {project: default, syncPolicy: {automated: {prune: true, selfHeal: true}, retry: {limit: 5}}}}`, `{"operationState": {"phase": "Running"}}`, `{"operationState": {"phase": "Succeeded"}}`, `{"sync": {"status": "Synced"}}`},
		{"cnpg-cluster", `{apiVersion: postgresql.cnpg.io/v1, kind: Cluster, spec: {instances: 3}}`, `{"readyInstances": 2}`, foreignCondition("cnpg.io/hibernation", "True", "Hibernated"), `{"readyInstances": 3}`},
		{"strimzi-kafka", `{apiVersion: kafka.strimzi.io/v1, kind: Kafka, metadata: {annotations: {strimzi.io/node-pools: enabled}}, spec: {kafka: {version: 4.1.0}}}`, ready, foreignCondition("ReconciliationPaused", "True", ""), ready},
		{"keda-scaledobject", `{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {annotations: {autoscaling.keda.sh/paused: "false"}}, spec: {scaleTargetRef: {name: shop}, minReplicaCount: 0}}`, foreignCondition("Paused", "False", ""), foreignCondition("Paused", "True", ""), ready},
		{"crossplane-bucket", `{apiVersion: s3.aws.m.upbound.io/v1beta1, kind: Bucket, spec: {forProvider: {region: eu-central-1}}}`, synced, foreignCondition("Synced", "False", "ReconcilePaused"), synced},
		{"capi-cluster", `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, spec: {controlPlaneEndpoint: {host: 10.0.0.1}}}`, unpaused, foreignCondition("Paused", "True", "Paused"), unpaused},
	}
}

// ReadStopAdapter returns the StopAdapter of an example, without creating it.
func ReadStopAdapter(t testing.TB, example string) *torporv1alpha1.StopAdapter {
	t.Helper()
	a := &torporv1alpha1.StopAdapter{}
	ExpectNoError(t, openManifest(t, filepath.Join("..", "examples", "stopadapters", example+".yaml")).Decode(a))
	return a
}

// Build returns the object, without creating it.
func (o ForeignObject) Build(t testing.TB, name types.NamespacedName) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	ExpectNoError(t, yaml.Unmarshal([]byte(o.object), &u.Object))
	u.SetNamespace(name.Namespace)
	u.SetName(name.Name)
	return u
}

// ReportForeignStatus writes a status of a ForeignObject, with the object's current generation as the observed one,
// as the kind's own controller does.
func (e *Environment) ReportForeignStatus(t testing.TB, u *unstructured.Unstructured, status string) {
	t.Helper()
	status = strings.ReplaceAll(status, `"observedGeneration": 3`, `"observedGeneration": `+strconv.FormatInt(u.GetGeneration(), 10))
	remove, set := client.RawPatch(types.MergePatchType, []byte(`{"status": null}`)), client.RawPatch(types.MergePatchType, []byte(`{"status": `+status+`}`))
	if u.GetKind() == "Application" { // Argo CD's kind has no status subresource.
		ExpectNoError(t, errors.Join(e.Client.Patch(t.Context(), u, remove), e.Client.Patch(t.Context(), u, set)))
		return
	}
	ExpectNoError(t, errors.Join(e.Client.Status().Patch(t.Context(), u, remove), e.Client.Status().Patch(t.Context(), u, set)))
}
