// SPDX-License-Identifier: Apache-2.0

// Package cf is the roof over the kinds of Cloud Foundry. A change of a CFApp takes this way: admission counts revisions by the
// rules in revision; app makes the processes that an app lacks and reports how it is; process makes, scales and deletes the
// LRPs of a process; lrp runs each as a StatefulSet. Beside them deployment turns a request into a revision, orgspace makes
// namespaces, build makes droplets, podstatus reads Pods, and api serves the CF API.
//
// This package itself holds the tests of the controllers together, on one control plane.
package cf
