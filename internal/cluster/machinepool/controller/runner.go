// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
)

// jobTime limits the duration of a job. A hundred MachineSets take some seconds in a cluster without delay.
const jobTime = time.Minute

// maxLooks limits how often one job reads the MachineSets, if they are modified between the read and the write.
const maxLooks = 3

// maxKeptBytes limits the JSON of the objects that one job keeps: the pool's MachineSets, with an average of 20 KiB,
// and all MachineAutoscalers. The decoded objects may need twenty times as much memory, for example if a list
// contains only {}.
const maxKeptBytes = machinepool.MaxMachineSets * 20 << 10

// poolRunner reads and changes clusters' MachineSets outside of reconcile passes, so that no pass waits for a cluster.
type poolRunner struct {
	targetcalls.Connector
	*targetcalls.Runner[poolJob, machinepool.Answer, machinepool.Attempt]
	clock   clock.PassiveClock
	metrics *Metrics
}

// poolJob is a job and the data that it needs.
type poolJob struct {
	machinepool.Job
	Cluster types.NamespacedName
	Server  targetcalls.Server
}

// refusal is an error about the pool in a reachable cluster.
type refusal struct {
	machinepool.Refusal
	cause error
}

// Error implements error.
func (r *refusal) Error() string { return r.Message }

// Unwrap implements the interface of errors.Is and errors.As.
func (r *refusal) Unwrap() error { return r.cause }

func refuse(reason, message string, cause error) error {
	return &refusal{machinepool.Refusal{Reason: reason, Message: message}, cause}
}

func newPoolRunner(connector targetcalls.Connector, now clock.PassiveClock, metrics *Metrics) *poolRunner {
	r := &poolRunner{Connector: connector, clock: now, metrics: metrics}
	r.Runner = targetcalls.NewRunner(r.do, machinepool.NextAttempt)
	return r
}

// do runs a job, and counts it in the metrics. A cluster that exceeds jobTime counts as unresponsive, so that its next
// job does not delay other clusters.
func (r *poolRunner) do(ctx context.Context, job *poolJob) (*machinepool.Answer, targetcalls.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	begun := r.clock.Now()
	answer := r.run(ctx, job)
	r.metrics.countJob(answer, answer.At.Sub(begun))
	return answer, targetcalls.Outcome{At: answer.At, HasFailed: answer.NoAnswer != "" || answer.Refusal != nil, IsSilent: answer.NoAnswer != ""}
}

// run runs a job. It stops at the first request that gets no response or is refused, and when the cluster may no longer
// be dialled.
func (r *poolRunner) run(ctx context.Context, job *poolJob) *machinepool.Answer {
	answer := &machinepool.Answer{Job: job.Job}
	err := r.connectAndApply(ctx, job, answer)
	answer.At = r.clock.Now()
	refused, isRefused := errors.AsType[*refusal](err)
	switch {
	case err == nil:
		answer.IsComplete = true
	case isRefused:
		answer.Refusal = &refused.Refusal
	case errors.Is(err, targetcalls.ErrGateClosed):
	case errors.Is(err, machinepool.ErrMalformed):
		answer.Refusal = &machinepool.Refusal{Reason: hivev1.MachinePoolRefusedReason, Message: "The cluster returned an invalid list: " + machinepool.ErrMalformed.Error()}
	default:
		answer.NoAnswer = targetcalls.DescribeError(err)
	}
	return answer
}

// poolConnection is the connection of one job.
type poolConnection struct {
	runner *poolRunner
	job    *poolJob
	client *targetcluster.ClusterClient
	writer *targetcluster.ObjectWriter
	answer *machinepool.Answer
}

func (r *poolRunner) connectAndApply(ctx context.Context, job *poolJob, answer *machinepool.Answer) (err error) {
	defer targetcalls.RecoverPanic(ctx, &err)
	if !r.MayDial(ctx, job.Cluster) {
		return targetcalls.ErrGateClosed
	}
	client, err := r.Connect(ctx, job.Cluster, job.Server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer client.Close()
	c := &poolConnection{runner: r, job: job, client: client, writer: client.NewObjectWriter(Name), answer: answer}
	for range maxLooks {
		// The cluster's own controllers also write to MachineSets, for example the number of ready machines. Their
		// writes cause conflicts.
		if err = c.lookAndApply(ctx); !k8serrors.IsConflict(err) {
			return err
		}
	}
	return err
}

func (c *poolConnection) lookAndApply(ctx context.Context) error {
	sets, autoscalers, hasAutoscalers, err := c.list(ctx)
	if err != nil {
		return err
	}
	changes, refused := machinepool.PlanChanges(&c.job.Job, sets, autoscalers, hasAutoscalers)
	c.answer.MachineSets = changes.Before
	if refused != nil {
		return &refusal{*refused, nil}
	}
	return c.apply(ctx, &changes)
}

// list returns the MachineSets that may belong to the pool, and all MachineAutoscalers.
func (c *poolConnection) list(ctx context.Context) (sets []machinepool.MachineSet, autoscalers []machinepool.Autoscaler, hasAutoscalers bool, err error) {
	size := 0
	keep := func(item []byte) error {
		if size += len(item); size > maxKeptBytes {
			return machinepool.ErrMalformed
		}
		return nil
	}
	err = c.listPage(ctx, machinepool.MachineSetVersion, machinepool.MachineSetResource, func(item []byte) error {
		set, err := machinepool.DecodeMachineSet(item)
		if err != nil {
			return fmt.Errorf("decode a MachineSet: %w", err)
		}
		if !c.job.Owns(&set) {
			return nil
		}
		sets = append(sets, set)
		return keep(item)
	})
	if errors.Is(err, targetcluster.ErrUnknownKind) {
		c.answer.MachineSets = []hivev1.MachineSetStatus{}
		return nil, nil, false, refuse(hivev1.NoMachineAPIReason, "Expected the cluster to serve MachineSets of OpenShift, found that it does not", err)
	}
	if err != nil {
		return nil, nil, false, err
	}
	err = c.listPage(ctx, machinepool.AutoscalerVersion, machinepool.AutoscalerResource, func(item []byte) error {
		autoscaler, err := machinepool.DecodeAutoscaler(item)
		if err != nil {
			return fmt.Errorf("decode a MachineAutoscaler: %w", err)
		}
		autoscalers = append(autoscalers, autoscaler)
		return keep(item)
	})
	if errors.Is(err, targetcluster.ErrUnknownKind) {
		return sets, nil, false, nil
	}
	return sets, autoscalers, true, err
}

func (c *poolConnection) listPage(ctx context.Context, version, resource string, visit func([]byte) error) error {
	return c.send(ctx, "list "+resource, func() error {
		return c.client.ListPage(ctx, parseVersion(version).WithResource(resource), machinepool.Namespace, visit)
	})
}

// apply records each change immediately, because the next request may fail.
func (c *poolConnection) apply(ctx context.Context, changes *machinepool.Changes) error {
	for _, name := range changes.DeleteAutoscalers {
		object := nameObject(machinepool.AutoscalerVersion, machinepool.AutoscalerKind, name)
		if err := c.send(ctx, "delete MachineAutoscaler "+name, func() error { return c.writer.Delete(ctx, object) }); err != nil {
			return err
		}
		c.answer.Changes = append(c.answer.Changes, "MachineAutoscaler "+name+": deleted")
	}
	for i, change := range changes.MachineSets {
		if err := c.applyChange(ctx, machinepool.MachineSetVersion, machinepool.MachineSetKind, change); err != nil {
			return err
		}
		c.answer.MachineSets[i] = changes.After[i]
	}
	for _, change := range changes.Autoscalers {
		if err := c.applyChange(ctx, machinepool.AutoscalerVersion, machinepool.AutoscalerKind, change); err != nil {
			return err
		}
	}
	return nil
}

func (c *poolConnection) applyChange(ctx context.Context, version, kind string, change machinepool.Change) error {
	object := nameObject(version, kind, change.Name)
	err := c.send(ctx, "apply "+kind+" "+change.Name, func() error { return c.writer.Apply(ctx, object, change.Manifest) })
	if err == nil && len(change.Differences) > 0 {
		c.answer.Changes = append(c.answer.Changes, fmt.Sprintf("%s %s: %s", kind, change.Name, strings.Join(change.Differences, ", ")))
	}
	return err
}

// send sends a request if the cluster may be dialled, and adds a description of the request to the error.
func (c *poolConnection) send(ctx context.Context, what string, request func() error) error {
	err := c.runner.Send(ctx, c.job.Cluster, request)
	if err == nil {
		return nil
	}
	if why, isRefusal := targetcluster.DescribeRefusal(err, true); isRefusal {
		return refuse(hivev1.MachinePoolRefusedReason, fmt.Sprintf("The cluster rejected the request to %s: %s", what, why), err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func nameObject(version, kind, name string) targetcluster.ObjectName {
	return targetcluster.ObjectName{
		GroupVersionKind: parseVersion(version).WithKind(kind), NamespacedName: types.NamespacedName{Namespace: machinepool.Namespace, Name: name},
	}
}

func parseVersion(version string) schema.GroupVersion {
	group, name, _ := strings.Cut(version, "/")
	return schema.GroupVersion{Group: group, Version: name}
}
