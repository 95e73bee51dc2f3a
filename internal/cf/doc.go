// SPDX-License-Identifier: Apache-2.0

// Package cf contains the controllers and the API for Cloud Foundry apps. A change to a CFApp passes through these
// packages: admission counts revisions by the rules in package revision; app creates missing processes of the app and
// reports its state; process creates, scales and deletes the LRPs of a process; lrp runs each LRP as a StatefulSet. In
// addition, deployment turns a request into a revision, orgspace creates namespaces, build creates droplets, podstatus
// reads Pods, and api serves the CF API.
//
// This package itself contains only tests, which run all controllers together on one control plane.
package cf
