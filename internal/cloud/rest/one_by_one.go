// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"slices"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// OneByOneAccount is an account in a cloud that accepts orders only for single machines.
type OneByOneAccount interface {
	// Name returns a name that is unique among the accounts of the cloud and does not reveal secrets.
	Name() string
	// ListMachines returns the machines of the clusters with these infraIDs, by infraID.
	ListMachines(ctx context.Context, infraIDs []string) (map[string][]actuator.Machine, error)
	// RequireStopRights returns an error if the cloud reports in advance that the right to stop or to start one of the
	// machines is missing.
	RequireStopRights(ctx context.Context, ids []string) error
	// StopMachine stops a machine, and StartMachine starts one. An error that concerns only this machine is an
	// *onebyone.RefusedError.
	StopMachine(ctx context.Context, id string) error
	StartMachine(ctx context.Context, id string) error
}

// OneByOneActuator implements the common part of actuator.BatchActuator for clouds that accept orders only for single
// machines. It is safe for concurrent use.
type OneByOneActuator[A OneByOneAccount] struct {
	// FindAccount returns the account of a target. It does not call the cloud.
	FindAccount func(actuator.Target) (A, error)
	// Attempts is the maximum number of attempts of a listing or a start while the cloud does not respond.
	Attempts int
	// StopOperation and StartOperation are the orders' names in messages.
	StopOperation, StartOperation string
}

// AccountOf implements actuator.BatchActuator.
func (a OneByOneActuator[A]) AccountOf(_ context.Context, t actuator.Target) (string, error) {
	account, err := a.FindAccount(t)
	if err != nil {
		return "", err
	}
	return account.Name(), nil
}

// Observe implements actuator.Actuator. A cluster without machines causes no error.
func (a OneByOneActuator[A]) Observe(ctx context.Context, t actuator.Target) ([]actuator.Machine, error) {
	found, err := a.ObserveAll(ctx, t, []string{t.InfraID})
	return found[t.InfraID], err
}

// ObserveAll implements actuator.BatchActuator.
func (a OneByOneActuator[A]) ObserveAll(ctx context.Context, t actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	account, err := a.FindAccount(t)
	if err != nil {
		return nil, err
	}
	return RetryUnreachable(ctx, a.Attempts, func() (map[string][]actuator.Machine, error) { return account.ListMachines(ctx, infraIDs) })
}

// RequireStopRights implements actuator.BatchActuator.
func (a OneByOneActuator[A]) RequireStopRights(ctx context.Context, t actuator.Target, ids []string) error {
	account, err := a.FindAccount(t)
	if err != nil {
		return err
	}
	return account.RequireStopRights(ctx, ids)
}

// Stop implements actuator.Actuator. If the cloud refuses to stop one machine, the other machines are still stopped.
func (a OneByOneActuator[A]) Stop(ctx context.Context, t actuator.Target, ids []string) error {
	if err := a.RequireStopRights(ctx, t, ids); err != nil {
		return err
	}
	return a.StopAll(ctx, t, [][]string{ids})[0]
}

// Start implements actuator.Actuator. The RefusedIDs of the error are the machines whose start failed, unless all
// failed.
func (a OneByOneActuator[A]) Start(ctx context.Context, t actuator.Target, ids []string) error {
	return a.StartAll(ctx, t, [][]string{ids})[0]
}

// StopAll implements actuator.BatchActuator. Each stop is sent once. Before repeating a stop, a caller must check
// that the stop is still wanted.
func (a OneByOneActuator[A]) StopAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, a.StopOperation, clusters, func(account A, id string) error { return account.StopMachine(ctx, id) })
}

// StartAll implements actuator.BatchActuator.
func (a OneByOneActuator[A]) StartAll(ctx context.Context, t actuator.Target, clusters [][]string) []error {
	return a.orderAll(t, a.StartOperation, clusters, func(account A, id string) error {
		_, err := RetryUnreachable(ctx, a.Attempts, func() (struct{}, error) { return struct{}{}, account.StartMachine(ctx, id) })
		return err
	})
}

// orderAll calls order for each machine, as onebyone.Run does, and returns an error or nil for each cluster.
func (a OneByOneActuator[A]) orderAll(t actuator.Target, operation string, clusters [][]string, order func(A, string) error) []error {
	account, err := a.FindAccount(t)
	if err != nil {
		return slices.Repeat([]error{err}, len(clusters))
	}
	return onebyone.Run(operation, clusters, func(id string) error { return order(account, id) })
}
