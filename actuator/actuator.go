// SPDX-License-Identifier: Apache-2.0

// Package actuator defines the interface between Torpor and a cloud, which lists, stops and starts the machines of a
// cluster. Each implementation is a package that uses one SDK. Package actuatortest holds the contract tests that
// every implementation must pass.
package actuator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Actuator lists, stops and starts the machines of clusters on one platform. All methods are idempotent, do not wait
// for machines to change state, and return when their context ends. If the cloud reports the cause of an error, the
// error is or wraps an *Error.
type Actuator interface {
	// Platform returns the field under spec.platform that this actuator serves, such as "aws".
	Platform() string
	// Observe returns every machine of the cluster, from all pages, sorted by ID. Terminated machines are omitted.
	Observe(ctx context.Context, t Target) ([]Machine, error)
	// Stop requests that the machines with these IDs be stopped. Machines that are already stopping or stopped cause no
	// error. No machine is stopped if the cloud reports in advance that permissions to stop or start one of the
	// machines are missing. If the cloud rejects a request for several machines because one of them can never be
	// stopped, none of them is stopped, and no further request is sent. Machines of earlier requests may be stopped by
	// then: a large cluster needs several requests, and a request that the cloud rejects for another reason is split.
	Stop(ctx context.Context, t Target, ids []string) error
	// Start requests that the machines with these IDs be started. A machine that cannot start does not prevent the
	// others from starting.
	Start(ctx context.Context, t Target, ids []string) error
}

// Target identifies a cluster at its cloud, and holds the credentials of its account.
type Target struct {
	// InfraID identifies the machines of the cluster: by their tags, their names or their group.
	InfraID string
	// Namespace is the namespace of the cluster on the hub.
	Namespace string
	// Region is the region of the machines. It is empty if one call to the cloud covers all regions.
	Region string
	// Cloud selects one of several clouds of a platform, such as AzureChinaCloud, or holds the address of a container
	// engine. It is empty if the platform has only one cloud.
	Cloud string
	// Machines are the machines of the cluster, if its owner lists them in the spec.
	Machines []ListedMachine
	// Credentials is the data of the credentials Secret. It must never appear in an error.
	Credentials map[string][]byte
	// DiscardLocalDisks defines whether a stop may discard the data on disks that are attached to the machine's
	// host. If nil, the cloud's default applies.
	DiscardLocalDisks *bool
	// FreesCapacity defines whether a stop releases the capacity that is reserved for the machines, if the cloud
	// offers the choice. A later start may then fail for lack of capacity.
	FreesCapacity bool
	// Role, if set, is used instead of Credentials: the manager assumes this role with its own identity. If Role.Name
	// is empty, the manager uses its own identity for clusters in Role.Namespace.
	Role *Role
}

// ListedMachine is a machine that the cluster's owner lists.
type ListedMachine struct {
	// Name is the machine's ID.
	Name string
	// Address is the address of the interface that switches the machine off and on.
	Address string
}

// Role is an identity in the cloud that another identity may assume.
type Role struct {
	// Name identifies the role in the cloud, on AWS by its ARN. It is empty if the manager uses its own access.
	Name string
	// ExternalID is the value that the role's owner requires from an identity that assumes the role. It may be
	// empty.
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
	// Note explains State to users, for example that the machine's controller does not answer. It may be empty, and
	// must not change while the cause remains the same.
	Note string
	// HoldsCapacity reports whether a stopped machine still occupies capacity that is billed, as on some clouds
	// after a shutdown by the guest. Stop releases this capacity.
	HoldsCapacity bool
	// Role is the role of the machine in its cluster, as derived from its labels or its name.
	Role MachineRole
	// Spot reports whether the machine runs on spare capacity. Some clouds can only terminate such a machine, not
	// stop it.
	Spot bool
	// Group is the name of the group that replaces the machine if it stops, such as an Auto Scaling group. It is
	// empty if the machine belongs to no such group.
	Group string
	// MissingReservation is the capacity reservation that the machine requires to start, if the machine currently runs
	// outside of it, for example because the reservation was cancelled. After a stop, the machine would not start
	// again. It is empty if the machine requires no reservation, or runs in the required one.
	MissingReservation string
	// ExceededQuotas are the quotas of the machine's region whose usage exceeds their limit, for example because the
	// limit was lowered. After a stop, some of the machines that use such a quota could not start again. The list is
	// empty if the cloud does not report quotas.
	ExceededQuotas []string
	// Account is the name of the account that owns the machine, unique among all accounts of all clouds. It is empty
	// if the cloud does not report the account.
	Account string
	// Addresses are the IP addresses and DNS names of the machine as the cloud reports them. The addresses in a node's
	// certificate request are compared with them. The list is empty if the cloud does not report them.
	Addresses []string
}

// MachineState is the state of a machine.
type MachineState string

// The states of a machine.
const (
	Running  MachineState = "running"
	Stopping MachineState = "stopping"
	Stopped  MachineState = "stopped"
	Starting MachineState = "starting"
)

// ErrorClass classifies an error of a cloud by its possible remedies.
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

// Error is an error of a cloud with its class. Message is shown in conditions. It must be the same each time the
// error occurs (no request IDs, no times), and must not contain secrets.
type Error struct {
	Class   ErrorClass
	Message string
	// RefusedIDs are the machines, or the groups, whose orders the cloud rejected while it accepted others. If the
	// cloud rejected the orders of all machines, the list is empty or contains all of them.
	RefusedIDs []string
	// RetryAfter is how long the cloud asks clients to wait before the next request. It is zero if the cloud does not
	// specify a time.
	RetryAfter time.Duration
}

// Errorf returns an *Error with a class and a formatted message.
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
