// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

const (
	nodesPath = "/api/v1/nodes"
	podsPath  = "/api/v1/pods"
	// podsOfNodes selects scheduled Pods that have not finished.
	podsOfNodes = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	// maxDrainedPods is the maximum number of Pods that one poll returns. More Pods are read once these are gone.
	maxDrainedPods = 500
	// drainPause is the shortest time between two attempts.
	drainPause = 2 * time.Second
	// drainTime is the part of a poll in which nodes are changed and Pods evicted.
	drainTime = 5 * time.Second
	// maxKeptPods limits the number of reported Pods that PodDisruptionBudgets protect from eviction.
	maxKeptPods = 100
	// maxRefusals limits the stored names of permanently refused nodes and Pods.
	maxRefusals = 2 * maxDrainedPods
	// An attempt keeps the refusals of the previous one if that began at most refusalMemory before. Otherwise, refusals
	// of Pods that it does not try would be lost.
	refusalMemory = time.Minute
)

// errEnoughPods stops a list request once enough Pods were read.
var errEnoughPods = errors.New("enough pods were read")

// Drain contains the requested changes to a cluster's nodes and Pods.
type Drain struct {
	Cordon, Uncordon []hibernation.NodeVersion
	Evict            []hibernation.ObservedPod
}

func (d Drain) isEmpty() bool { return len(d.Cordon)+len(d.Uncordon)+len(d.Evict) == 0 }

// DrainResult is the result of a Drain.
type DrainResult struct {
	At time.Time
	// Kept are the names of Pods that PodDisruptionBudgets or rate limits protected from eviction.
	Kept []string
	// Refused are the names of nodes and Pods that the kubeconfig's user is permanently not allowed to change.
	Refused map[string]bool
	Err     error
}

// noteRefusal adds a name to Refused, up to maxRefusals names.
func (r *DrainResult) noteRefusal(name string) {
	if r.Refused == nil {
		r.Refused = map[string]bool{}
	}
	if len(r.Refused) < maxRefusals {
		r.Refused[name] = true
	}
}

// noteEarlier copies the refusals of a recent attempt.
func (r *DrainResult) noteEarlier(last DrainResult) {
	if r.At.Sub(last.At) > refusalMemory {
		return
	}
	for name := range last.Refused {
		r.noteRefusal(name)
	}
}

// ListWorkerPods returns the Pods of nodes outside the control plane, except static Pods and Pods of DaemonSets.
func (c *ClusterClient) ListWorkerPods(ctx context.Context, nodes []hibernation.ObservedNode) (hibernation.WorkerPods, error) {
	isWorker := map[string]bool{}
	for _, n := range nodes {
		isWorker[n.Name] = !n.ControlPlane
	}
	found := hibernation.WorkerPods{IsRead: true}
	err := c.listSelected(ctx, listQuery{path: podsPath, fields: podsOfNodes}, func(item []byte) error {
		pod, isDrained, err := decodePod(item)
		switch {
		case err != nil || !isDrained || !isWorker[pod.Node]:
			return err
		case len(found.Pods) == maxDrainedPods:
			found.HasMore = true
			return errEnoughPods
		}
		found.Pods = append(found.Pods, pod)
		return nil
	})
	if err != nil && !errors.Is(err, errEnoughPods) {
		return hibernation.WorkerPods{}, fmt.Errorf("list pods: %w", err)
	}
	return found, nil
}

// decodePod reads the fields of a Pod that a drain needs. isDrained is false for static Pods and Pods of DaemonSets,
// which stop with their node.
func decodePod(item []byte) (pod hibernation.ObservedPod, isDrained bool, err error) {
	var p struct {
		Metadata struct {
			objectMetadata

			Namespace       string            `json:"namespace"`
			Annotations     map[string]string `json:"annotations"`
			OwnerReferences json.RawMessage   `json:"ownerReferences"`
		} `json:"metadata"`
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(item, &p); err != nil || !isNameOfPath(p.Metadata.Name) || !isNameOfPath(p.Metadata.Namespace) {
		return pod, false, errMalformed
	}
	owners, err := decodeInnerList[metav1.OwnerReference](p.Metadata.OwnerReferences)
	if err != nil {
		return pod, false, err
	}
	pod = hibernation.ObservedPod{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, UID: p.Metadata.UID, Node: p.Spec.NodeName,
		IsLeaving: p.Metadata.DeletionTimestamp != nil, IsBare: true,
	}
	for _, o := range owners {
		if o.Controller != nil && *o.Controller {
			pod.IsBare = false
			if o.Kind == "DaemonSet" {
				return pod, false, nil
			}
		}
	}
	_, isMirror := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return pod, !isMirror, nil
}

func isNameOfPath(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }

// drain changes nodes and evicts Pods within its time budget. Each attempt starts with another Pod, so Pods that
// PodDisruptionBudgets protect do not delay others.
func (j *lookJob) drain(ctx context.Context, client *ClusterClient, now time.Time) {
	if j.toDrain.isEmpty() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	j.drained = DrainResult{At: now}
	note := func(name string, err error) {
		if IsRefusedForGood(err) {
			j.drained.noteRefusal(name)
		}
		if j.drained.Err == nil {
			j.drained.Err = ignoreDecided(err)
		}
	}
	for _, n := range j.toDrain.Cordon {
		note(n.Name, client.setCordon(ctx, n, true))
	}
	for _, n := range j.toDrain.Uncordon {
		note(n.Name, client.setCordon(ctx, n, false))
	}
	for _, p := range inTurn(j.toDrain.Evict, j.lastEvicted) {
		if ctx.Err() != nil {
			return // The remaining Pods are evicted after the next poll.
		}
		err := client.evictPod(ctx, p)
		j.lastEvicted = NameOfPod(p)
		if k8serrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || k8serrors.IsTooManyRequests(err) {
			if len(j.drained.Kept) < maxKeptPods {
				j.drained.Kept = append(j.drained.Kept, NameOfPod(p))
			}
			continue
		}
		note(NameOfPod(p), err)
	}
}

// NameOfPod returns the Pod's name in a DrainResult.
func NameOfPod(p hibernation.ObservedPod) string { return p.Namespace + "/" + p.Name }

// inTurn returns the Pods sorted by name, starting after the given one.
func inTurn(pods []hibernation.ObservedPod, last string) []hibernation.ObservedPod {
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b hibernation.ObservedPod) int { return cmp.Compare(NameOfPod(a), NameOfPod(b)) })
	first := slices.IndexFunc(sorted, func(p hibernation.ObservedPod) bool { return strings.Compare(NameOfPod(p), last) > 0 })
	if first <= 0 {
		return sorted
	}
	return slices.Concat(sorted[first:], sorted[:first])
}

// setCordon cordons a node and sets CordonedAnnotation, or reverts both. It sends the observed resource version, so the
// API server rejects the change with a conflict if the node has changed in between.
func (c *ClusterClient) setCordon(ctx context.Context, n hibernation.NodeVersion, isCordoned bool) error {
	if !isNameOfPath(n.Name) {
		return errMalformed
	}
	mark := map[string]any{hivev1.CordonedAnnotation: nil}
	if isCordoned {
		mark[hivev1.CordonedAnnotation] = "true"
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion, "annotations": mark},
		"spec":     map[string]any{"unschedulable": isCordoned},
	})
	if err != nil {
		return fmt.Errorf("write cordon: %w", err)
	}
	if err := c.discardObject(ctx, c.rest.Patch(types.MergePatchType).AbsPath(nodesPath, n.Name).Body(patch)); err != nil {
		return fmt.Errorf("cordon or uncordon node %s: %w", n.Name, err)
	}
	return nil
}

// evictPod requests the eviction of the observed Pod. The caller ignores the error for a deleted Pod.
func (c *ClusterClient) evictPod(ctx context.Context, p hibernation.ObservedPod) error {
	eviction, err := json.Marshal(policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(p.UID)},
	})
	if err != nil {
		return fmt.Errorf("write eviction: %w", err)
	}
	request := c.rest.Post().AbsPath("/api/v1/namespaces", p.Namespace, "pods", p.Name, "eviction").SetHeader("Content-Type", "application/json").Body(eviction)
	if err := c.discardAnswer(ctx, request); err != nil {
		return fmt.Errorf("evict pod %s: %w", NameOfPod(p), err)
	}
	return nil
}
