// SPDX-License-Identifier: Apache-2.0

package actuator

// Describer is an Actuator that says what users have to know of its platform. The table in docs/clouds/README.md is made of it.
type Describer interface {
	Actuator
	// Describe returns the same on every call; it does not call the cloud.
	Describe() Description
}

// Description is what users have to know of a platform, each in a few words of Markdown.
type Description struct {
	// FoundBy is what the machines of a cluster are found by.
	FoundBy string
	// Stopped is what the platform calls a machine that sleeps.
	Stopped string
	// Credentials are what an account is opened with.
	Credentials string
	// Calls are how many calls a listing and an order take.
	Calls string
}
