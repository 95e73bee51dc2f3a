// SPDX-License-Identifier: Apache-2.0

package stopadapter

// EventObjectsLeft reports that a deleted StopAdapter could not restore the objects that it has stopped, and why.
const EventObjectsLeft = "ObjectsLeft"
