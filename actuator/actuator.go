// SPDX-License-Identifier: Apache-2.0

// Package actuator is the interface between Torpor and a cloud: it lists, stops and starts the machines of one
// cluster. An implementation is one package that uses one SDK. Package actuatortest holds the contract that every
// implementation must pass.
package actuator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Actuator lists, stops and starts the machines of clusters at one kind of cloud. All calls are idempotent, do not
// wait for the machines, and return when their context ends. Errors are or wrap an *Error if the cloud reports the
// cause.
type Actuator interface {
	// Platform returns the field under spec.platform that this actuator serves, such as "aws".
	Platform() string
	// Observe returns every machine of the cluster, from all pages, ordered by ID. Terminated machines are left out.
	Observe(ctx context.Context, t Target) ([]Machine, error)
	// Stop requests a stop of the given machines. Machines that are stopping or stopped already cause no error. No
	// machine is stopped if the cloud reports in advance that the rights to stop or to start one of them are missing,
	// or if it refuses a joint request because one of them can never be stopped.
	Stop(ctx context.Context, t Target, ids []string) error
	// Start requests a start of the given machines. A machine that cannot start does not prevent the others from
	// starting.
	Start(ctx context.Context, t Target, ids []string) error
}

// Target identifies a cluster at its cloud, with the credentials of its account.
type Target struct {
	// InfraID identifies the machines of the cluster: by their tags, their names or their group.
	InfraID string
	// Namespace is the namespace of the cluster on the hub.
	Namespace string
	// Region is the region of the machines. It is empty if one call to the cloud covers all regions.
	Region string
	// Cloud is the cloud of the platform that has the account, such as AzureChinaCloud or the address of an engine. It
	// is empty if the platform has only one.
	Cloud string
	// Machines are the machines of the cluster, if its owner lists them.
	Machines []ListedMachine
	// Credentials are the keys of the credentials Secret. They never appear in an error.
	Credentials map[string][]byte
	// DiscardLocalDisks reports whether a stop loses the data on disks that are part of a machine's host. If nil, the
	// cloud's default applies.
	DiscardLocalDisks *bool
	// FreesCapacity reports whether a stop gives up the capacity reserved for the machines, at a cloud that offers the
	// choice. A later start may then find no capacity.
	FreesCapacity bool
	// Role, if set, is assumed with the manager's own identity, instead of using Credentials. If its Name is empty,
	// the manager's own access is used for the namespace in Role.
	Role *Role
}

// ListedMachine is a machine that the cluster's owner lists.
type ListedMachine struct {
	// Name is the machine's ID.
	Name string
	// Address is the address that switches the machine off and on.
	Address string
}

// Role is an identity at the cloud that another identity may assume.
type Role struct {
	// Name is the cloud's name of the role. It is empty if the manager's own access is used.
	Name string
	// ExternalID is the value that the role's owner expects from an identity that assumes it. It may be empty.
	ExternalID string
	// Namespace is the namespace of the cluster for which the role is assumed.
	Namespace string
}

// Machine describes one machine as the cloud reports it.
type Machine struct {
	// ID is the cloud's identifier of the machine.
	ID string
	// Name is a human-readable name. It may be empty.
	Name string
	// State is the current state of the machine.
	State MachineState
	// Note explains State to users, for example that the machine's controller does not answer. It is empty if there is
	// nothing to explain, and does not change while the cause stays the same.
	Note string
	// HoldsCapacity reports whether a stopped machine still occupies capacity that is paid for. Some clouds do this
	// after a shutdown by the guest. A stop releases the capacity.
	HoldsCapacity bool
	// Role is the role of the machine in its cluster, as far as its labels or its name show it.
	Role MachineRole
	// Spot reports whether the machine runs on spare capacity. The cloud may only be able to terminate such a machine,
	// not to stop it.
	Spot bool
	// Group is the name of the cloud's group that replaces the machine once it stops, such as an Auto Scaling group.
	// It is empty if there is no such group.
	Group string
	// Account is the name of the account that owns the machine. It is unique among all accounts of all clouds. It is
	// empty if the cloud does not report the account.
	Account string
	// Addresses are the IP addresses and DNS names of the machine at the cloud. They confirm the addresses that nodes
	// claim. The list is empty if the cloud does not report them.
	Addresses []string
}

// MachineState is the state of a machine.
type MachineState string

// These are the states of a machine.
const (
	Running  MachineState = "running"
	Stopping MachineState = "stopping"
	Stopped  MachineState = "stopped"
	Starting MachineState = "starting"
)

// ErrorClass classifies a cloud's error by the possible remedies.
type ErrorClass string

// These are the classes of errors.
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

// Error is an error of a cloud with its class. Message is shown in conditions. It must be the same at each repetition
// (no request IDs, no times) and must not contain secrets.
type Error struct {
	Class   ErrorClass
	Message string
	// RefusedIDs are the machines for which a stop or start was refused while it was accepted for the others. The list
	// is empty if it was accepted for none.
	RefusedIDs []string
	// RetryAfter is how long the cloud asks callers to wait before the next call. It is zero if the cloud sets no
	// time.
	RetryAfter time.Duration
}

// Errorf returns an *Error of a class whose message is formatted.
func Errorf(class ErrorClass, format string, args ...any) error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Class, e.Message) }

// ClassOf returns the class of the first Error in err's tree, or Other if there is no Error.
func ClassOf(err error) ErrorClass {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Other
}
