// SPDX-License-Identifier: Apache-2.0

// Package revision holds the rules for the revisions of an app. They are pure: the manager's controllers, admission and the
// CF API come to the same answer from what each of them sees.
package revision
