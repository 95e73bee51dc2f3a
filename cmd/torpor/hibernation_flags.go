// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/torpor-dev/torpor/internal/manager"
)

// addHibernationFlags adds the flags with which an administrator changes how all clusters hibernate, and how this is
// reported.
func addHibernationFlags(f *pflag.FlagSet, o *manager.Options) {
	f.BoolVar(&o.HiveReasons, "hive-reasons", false, "report the conditions Hibernating and Ready of clusters, and their power state, with the reasons of Hive, "+
		"for Hive's ClusterPools and for tools that read these reasons; Hibernating is then False while a cluster stops or resumes")
	f.BoolVar(&o.RequireHibernationPossible, "require-hibernation-possible", false, "refuse to hibernate a cluster while its condition HibernationPossible is False, "+
		"as an annotation does for one cluster; see docs/spec/clusterdeployment.md")
}
