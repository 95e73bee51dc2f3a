// SPDX-License-Identifier: Apache-2.0

// Package completion lets a shell complete the command lines of plugins of kubectl.
package completion

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// completerPrefix begins the name of the program that kubectl asks what may follow in the command line of a plugin.
const completerPrefix = "kubectl_complete-"

// PluginArguments returns the arguments of a plugin. A plugin that is started by the name of its completer, which may be a link to it, is
// asked what may follow.
func PluginArguments(argv []string) []string {
	if strings.HasPrefix(filepath.Base(argv[0]), completerPrefix) {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// OfferValues lets a shell complete the value of a flag, where the command has it.
func OfferValues(cmd *cobra.Command, flag string, values ...string) {
	if cmd.Flags().Lookup(flag) != nil {
		// It fails only for a flag that is not there, or that has its values already.
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
}
