// SPDX-License-Identifier: Apache-2.0

// Package revision implements the rules for the revisions of an app. It is pure, so the controllers, admission and the
// CF API compute the same result from the same objects.
package revision
