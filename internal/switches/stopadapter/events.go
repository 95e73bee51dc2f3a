// SPDX-License-Identifier: Apache-2.0

package stopadapter

// EventObjectsLeft reports that objects stopped through a deleted StopAdapter could not be restored, and why.
const EventObjectsLeft = "ObjectsLeft"
