// SPDX-License-Identifier: Apache-2.0

// Package completion provides shell completion for kubectl plugins.
package completion

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// completerPrefix is the prefix of the name of the program that kubectl runs to complete the command line of a
// plugin.
const completerPrefix = "kubectl_complete-"

// PluginArguments returns the arguments of a plugin. If the plugin runs under the name of its completer, for example
// through a link, the returned arguments request a completion.
func PluginArguments(argv []string) []string {
	if strings.HasPrefix(filepath.Base(argv[0]), completerPrefix) {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// OfferValues lets a shell complete the value of a flag, if the command has the flag.
func OfferValues(cmd *cobra.Command, flag string, values ...string) {
	if cmd.Flags().Lookup(flag) != nil {
		// The call fails only if the flag does not exist or already has completions.
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
}
