// SPDX-License-Identifier: Apache-2.0

// Package cf holds the kinds of Cloud Foundry. A change of a CFApp takes this path: admission counts
// revisions by the rules in revision; app creates the processes that an app lacks and reports its state;
// process creates, scales and deletes the LRPs of a process; lrp runs each as a StatefulSet. In addition,
// deployment turns a request into a revision, orgspace creates namespaces, build makes droplets, podstatus
// reads Pods, and api serves the CF API.
//
// This package itself contains the tests of the controllers together, on one control plane.
package cf
