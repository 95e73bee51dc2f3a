// SPDX-License-Identifier: Apache-2.0

// Package cf contains the controllers and the API for Cloud Foundry apps. A change to a CFApp passes through these
// packages: admission sets the revision of the app by the rules in package revision; app creates missing CFProcesses
// and reports the state of the app; process creates, scales and deletes the LRPs of a CFProcess; lrp runs each LRP as a
// StatefulSet. In addition, deployment turns a CFDeployment into a revision, orgspace creates namespaces, build creates
// droplets, podstatus reads Pods, and api serves the CF API.
//
// This package itself contains only tests, which run all controllers together on one control plane.
package cf
