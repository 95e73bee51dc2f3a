// SPDX-License-Identifier: Apache-2.0

// Package restart decides what revision an app has and what happens to its processes. It is pure: Next is the rule by
// which admission counts revisions, Decide turns what was Observed of a process into a Plan, and the builders say what
// an LRP and its StatefulSet look like. Packages webhook and controller beside it act.
package restart
