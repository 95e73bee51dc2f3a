// SPDX-License-Identifier: Apache-2.0

// Package actuator is the port between Torpor and a cloud: how the machines of one cluster are seen,
// stopped and started. An implementation is one package with one SDK; package actuatortest holds the
// contract that every implementation has to pass.
package actuator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Actuator sees, stops and starts the machines of clusters at one kind of cloud.
// All calls are idempotent, do not wait for the machines, and end with their context.
// Errors are or wrap an *Error where the cloud says what is wrong.
type Actuator interface {
	// Platform is the field under spec.platform that this actuator serves, such as "aws".
	Platform() string
	// Observe returns every machine of the cluster, in all pages, ordered by ID; machines that are gone for good are left out.
	Observe(ctx context.Context, t Target) ([]Machine, error)
	// Stop asks the cloud to stop the given machines. Machines that are stopping or stopped already are no error. Where the cloud
	// can tell beforehand that the rights to stop or to start one are missing, or refuses several together because one can never be
	// stopped, none is stopped.
	Stop(ctx context.Context, t Target, ids []string) error
	// Start asks the cloud to start the given machines. One machine that cannot start does not hold back the others.
	Start(ctx context.Context, t Target, ids []string) error
}

// Target identifies a cluster at its cloud, with the credentials of its account.
type Target struct {
	// InfraID is what the machines are found by: what they are tagged or named with, or the group that they are in.
	InfraID string
	// Namespace is that of the cluster on the hub.
	Namespace string
	// Region of the machines; empty where the cloud answers for all regions at once.
	Region string
	// Cloud is which of the platform's clouds the account is in, such as AzureChinaCloud or the address of an engine; empty where there is
	// one.
	Cloud string
	// Machines are those of the cluster where its owner lists them.
	Machines []ListedMachine
	// Credentials are the keys of the credentials Secret. They never appear in an error.
	Credentials map[string][]byte
	// DiscardLocalDisks says whether a stop loses the data on disks that are part of a machine's host; nil leaves that to the cloud.
	DiscardLocalDisks *bool
	// FreesCapacity says that a stop gives up the machines' places at a cloud that leaves that open; a start may then find none.
	FreesCapacity bool
	// Role, if set, is taken instead with the manager's own identity, or says for which namespace that counts.
	Role *Role
}

// ListedMachine is a machine that the cluster's owner names.
type ListedMachine struct {
	// Name is the machine's ID.
	Name string
	// Address is where it is turned off and on.
	Address string
}

// Role is an identity at the cloud that others may take.
type Role struct {
	// Name is the cloud's own name of the role; empty where the manager's own access counts.
	Name string
	// ExternalID is what the role's owner wants to be told by whoever takes it; it may be empty.
	ExternalID string
	// Namespace is that of the cluster for which it is taken.
	Namespace string
}

// Machine is one machine as the cloud sees it.
type Machine struct {
	// ID is the cloud's own name of the machine.
	ID string
	// Name is for people; it may be empty.
	Name string
	// State is what the machine does now.
	State MachineState
	// Note is what people should know of that, such as that nobody answers for the machine; empty for nothing. It is stable over repetitions.
	Note string
	// HoldsCapacity says of a stopped machine that its place at the cloud is kept and paid for, as after a shutdown from within at some
	// clouds. A stop gives the place back.
	HoldsCapacity bool
	// Role is what the machine is for, as far as its labels or its name tell.
	Role MachineRole
	// Spot says that it runs on spare capacity, and that the cloud may not be able to stop it but only to terminate it.
	Spot bool
	// Account is whose machine it is, by a name that no other account of any cloud has; empty if the cloud does not tell.
	Account string
	// Addresses are the IP addresses and DNS names by which the cloud knows the machine; they confirm what nodes claim. Empty
	// if the cloud does not tell.
	Addresses []string
}

// MachineState is what a machine does.
type MachineState string

// The states of a machine.
const (
	Running  MachineState = "running"
	Stopping MachineState = "stopping"
	Stopped  MachineState = "stopped"
	Starting MachineState = "starting"
)

// ErrorClass is the kind of a cloud's error, by what can be done about it.
type ErrorClass string

// The classes of errors.
const (
	CredentialsMissing ErrorClass = "credentials missing"
	CredentialsInvalid ErrorClass = "credentials invalid"
	PermissionDenied   ErrorClass = "permission denied"
	Unreachable        ErrorClass = "unreachable"
	Throttled          ErrorClass = "throttled"
	NoCapacity         ErrorClass = "no capacity"
	WrongState         ErrorClass = "wrong state"
	NotFound           ErrorClass = "not found"
	Other              ErrorClass = "other"
)

// Error is an error of a cloud with its class. Message must be stable over repetitions
// (no request ids, no times) and must not hold secrets: it is shown in conditions.
type Error struct {
	Class   ErrorClass
	Message string
	// RefusedIDs are the machines that a stop or start was refused for, if it was taken for the others; empty if it was not.
	RefusedIDs []string
	// RetryAfter is for how long the cloud wants not to be asked again; zero if it does not say.
	RetryAfter time.Duration
}

// Errorf returns an *Error of a class whose message is formatted.
func Errorf(class ErrorClass, format string, args ...any) error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Class, e.Message) }

// ClassOf finds the class of the first Error in err's tree, Other if there is none.
func ClassOf(err error) ErrorClass {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Other
}
