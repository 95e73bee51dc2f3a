// SPDX-License-Identifier: Apache-2.0

package actuator

// Describer is an optional interface of an Actuator that describes its platform for the documentation. The table in
// docs/clouds/README.md is generated from it.
type Describer interface {
	Actuator
	// Describe returns the same value on every call. It does not call the cloud.
	Describe() Description
}

// Description describes a platform for the documentation. Each text is a few words of Markdown.
type Description struct {
	// FoundBy describes how the machines of a cluster are found.
	FoundBy string
	// Stopped is the platform's term for a stopped machine.
	Stopped string
	// Credentials describes the credentials of an account.
	Credentials string
	// Calls describes how many API requests it takes to list, stop and start machines.
	Calls string
	// Errors describes how the platform's errors are classified, in order of precedence.
	Errors []ErrorDescription
}

// ErrorDescription describes errors of one class.
type ErrorDescription struct {
	// Errors are the codes, HTTP statuses or phrases that identify the errors, as a few words of Markdown.
	Errors string
	// Class is the class of the errors.
	Class ErrorClass
}
