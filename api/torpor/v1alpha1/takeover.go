// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TakeOverAnnotation lets Torpor handle an object that Hive, MOCO or Korifi has written before when its value is "true".
const TakeOverAnnotation = "torpor.dev/take-over"

// AnotherWriterCondition is True while Torpor leaves an object alone because another project's controller writes it.
const AnotherWriterCondition = "AnotherWriter"

// AnotherWriterReason means that Hive, MOCO or Korifi writes the object, as its field managers, a finalizer, a held Lease, a Deployment or a webhook show.
const AnotherWriterReason = "AnotherWriter"
