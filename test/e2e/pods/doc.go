// SPDX-License-Identifier: Apache-2.0

// Package pods tests MySQL clusters and apps with real Pods, as a user does: it runs the programs, and is a client
// of the database, of the CF API and of the apps. It needs root, a Debian machine and minutes, so only make e2e-pods
// runs it.
//
// Reading order: env_test.go → mysql_test.go (the steps, in the order in which they run on one cluster, with clients
// that write at the same time); for apps cf_apps_test.go (with requests at the same time).
package pods
