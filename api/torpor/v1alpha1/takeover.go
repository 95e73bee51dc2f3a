// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// TakeOverAnnotation lets Torpor manage an object that a controller of another project, such as Hive, MOCO or Korifi,
// has written, if it is "true".
const TakeOverAnnotation = "torpor.dev/take-over"

// AnotherWriterCondition is True while Torpor does not act on an object because another project's controller writes it.
const AnotherWriterCondition = "AnotherWriter"

// AnotherWriterReason means that another project, such as Hive, MOCO or Korifi, handles the object. Torpor detects this
// by field managers, a finalizer, a held Lease, a Deployment or a webhook.
const AnotherWriterReason = "AnotherWriter"
