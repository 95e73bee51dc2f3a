// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
)

// refusal is the error of one object of a set; the connection to the cluster works.
type refusal struct{ message string }

// Error implements error.
func (r *refusal) Error() string { return r.message }

// clusterConnection is the connection of one job.
type clusterConnection struct {
	applier *Applier
	job     *clusterJob
	writer  *targetcluster.ObjectWriter
}

// run runs a job. It stops at the first request that gets no response, and when the cluster may no longer be dialled.
func (a *Applier) run(ctx context.Context, job *clusterJob) *syncset.Answer {
	answer := &syncset.Answer{Job: job.Job}
	err := a.runOn(ctx, job, answer)
	answer.At = a.Clock.Now()
	if err != nil && !errors.Is(err, targetcalls.ErrGateClosed) {
		answer.NoAnswer = targetcalls.DescribeError(err)
	}
	return answer
}

func (a *Applier) runOn(ctx context.Context, job *clusterJob, answer *syncset.Answer) (err error) {
	defer targetcalls.RecoverPanic(ctx, &err)
	client, err := a.Connect(ctx, job.Cluster, job.Server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer client.Close()
	c := &clusterConnection{applier: a, job: job, writer: client.NewObjectWriter(Name)}
	begun := a.Clock.Now()
	for i := range job.Sets {
		if a.Clock.Since(begun) >= jobTime {
			return nil
		}
		set := &job.Sets[i]
		err := c.applySet(ctx, set)
		refused, isRefused := errors.AsType[*refusal](err)
		if err != nil && !isRefused {
			return err
		}
		result := syncset.Result{SetKey: set.SetKey, Generation: set.Generation}
		if isRefused {
			result.Failure = refused.message
		}
		answer.Results = append(answer.Results, result)
	}
	for _, r := range job.Delete {
		err := c.send(ctx, r, func(name targetcluster.ObjectName) error { return c.writer.Delete(ctx, name) })
		if refused, ok := errors.AsType[*refusal](err); ok {
			answer.NotDeleted = "An object was not deleted: " + refused.message
			continue
		}
		if err != nil {
			return err
		}
		answer.Deleted = append(answer.Deleted, r)
	}
	return nil
}

// applySet applies the resources of a set, then its Secrets, then its patches.
func (c *clusterConnection) applySet(ctx context.Context, set *setToApply) error {
	// All contents are checked before the first request is sent.
	objects, err := syncset.ReadObjects(set.Spec)
	if err != nil {
		return &refusal{err.Error()}
	}
	patches, err := syncset.ReadPatches(set.Spec)
	if err != nil {
		return &refusal{err.Error()}
	}
	for _, o := range objects {
		if err := c.apply(ctx, o.Reference, o.Manifest); err != nil {
			return err
		}
	}
	for _, mapping := range set.Spec.Secrets {
		if err := c.copySecret(ctx, set, mapping); err != nil {
			return err
		}
	}
	for i, body := range patches {
		if err := c.patch(ctx, &set.Spec.Patches[i], body); err != nil {
			return err
		}
	}
	return nil
}

func (c *clusterConnection) apply(ctx context.Context, r syncset.Reference, manifest []byte) error {
	return c.send(ctx, r, func(name targetcluster.ObjectName) error { return c.writer.Apply(ctx, name, manifest) })
}

// send sends a request if the cluster may be dialled, and adds the object's name to the message of a refusal.
func (c *clusterConnection) send(ctx context.Context, r syncset.Reference, request func(targetcluster.ObjectName) error) error {
	version, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return &refusal{fmt.Sprintf("%s: expected apiVersion to be VERSION or GROUP/VERSION", nameOf(r))}
	}
	err = c.applier.Send(ctx, c.job.Cluster, func() error {
		return request(targetcluster.ObjectName{GroupVersionKind: version.WithKind(r.Kind), NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}})
	})
	if err == nil {
		return nil
	}
	// The API server quotes rejected values in its message. These values may be part of a Secret.
	if why, isRefusal := targetcluster.DescribeRefusal(err, !isSecret(version.WithKind(r.Kind))); isRefusal {
		return &refusal{nameOf(r) + ": " + why}
	}
	return err
}

func isSecret(kind schema.GroupVersionKind) bool {
	return kind.Group == "" && kind.Kind == "Secret"
}

func nameOf(r syncset.Reference) string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// copySecret copies a Secret of the hub. The source of a SyncSet must be in the SyncSet's namespace, so a user cannot
// copy a Secret of another namespace into a cluster. Only administrators of the hub may write SelectorSyncSets.
func (c *clusterConnection) copySecret(ctx context.Context, set *setToApply, mapping hivev1.SecretMapping) error {
	source := types.NamespacedName{Namespace: mapping.SourceRef.Namespace, Name: mapping.SourceRef.Name}
	switch {
	case set.IsSelector && source.Namespace == "":
		return &refusal{fmt.Sprintf("Secret %s: expected sourceRef.namespace in a SelectorSyncSet, found none", source.Name)}
	case !set.IsSelector && source.Namespace != "" && source.Namespace != c.job.Cluster.Namespace:
		return &refusal{fmt.Sprintf("Secret %s: expected sourceRef.namespace of a SyncSet to be empty or the namespace of the SyncSet, %s; copy the Secret there", source.Name, c.job.Cluster.Namespace)}
	case !set.IsSelector:
		source.Namespace = c.job.Cluster.Namespace
	}
	secret, err := c.applier.ReadSecret(ctx, source)
	if err != nil {
		return &refusal{targetcalls.DescribeSecretError(source.String(), err)}
	}
	target := syncset.ReferenceOfSecret(mapping.TargetRef)
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": target.APIVersion, "kind": target.Kind, "type": secret.Type, "data": secret.Data,
		"metadata": metadataOf(target),
	})
	if err != nil {
		return &refusal{fmt.Sprintf("Secret %s cannot be encoded", source)}
	}
	return c.apply(ctx, target, manifest)
}

func metadataOf(r syncset.Reference) map[string]any {
	metadata := map[string]any{"name": r.Name}
	if r.Namespace != "" {
		metadata["namespace"] = r.Namespace
	}
	return metadata
}

// patch sends a patch of a set.
func (c *clusterConnection) patch(ctx context.Context, p *hivev1.SyncObjectPatch, body []byte) error {
	r := syncset.ReferenceOfPatch(p)
	kind := types.StrategicMergePatchType
	switch p.PatchType {
	case "merge":
		kind = types.MergePatchType
	case "json":
		kind = types.JSONPatchType
	}
	return c.send(ctx, r, func(name targetcluster.ObjectName) error { return c.writer.Patch(ctx, name, kind, body) })
}
