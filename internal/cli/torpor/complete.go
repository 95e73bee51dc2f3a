// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// anyKind accepts every kind.
func anyKind(kinds.Kind) bool { return true }

// completeNames returns the shell completion of object names. A command takes at most limit of them; 0 is no limit.
func (a *commands) completeNames(limit int, isWanted func(kinds.Kind) bool, nameOf func(stopRow) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kube, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := limitCommand(cmd)
		defer cancel()
		var names []string
		for _, r := range kube.listAnyRows(ctx, isWanted) {
			name := nameOf(r)
			if _, begun, _ := strings.Cut(toComplete, "/"); begun != "" && strings.HasPrefix(r.ObjectName(), toComplete) {
				name = r.ObjectName() // The user has begun to type the name of the object.
			}
			if !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// listAnyRows reads the objects of the accepted kinds. A kind that cannot be listed is skipped.
func (kube *kubeClient) listAnyRows(ctx context.Context, isWanted func(kinds.Kind) bool) (rows []stopRow) {
	known, err := kube.listKinds(ctx)
	if err != nil {
		known = kinds.ListBuiltIn()
	}
	for _, k := range known {
		if !isWanted(k) {
			continue
		}
		if found, _, err := kube.listRows(ctx, k, labels.Everything()); err == nil {
			rows = append(rows, found...)
		}
	}
	hideSharedNames(rows, rows)
	return rows
}

// completeObjects completes the arguments of a verb: kinds with a selector, names if the verb has one kind, and
// KIND/NAME otherwise.
func (v *verbCommand) completeObjects(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	isWanted := func(k kinds.Kind) bool {
		return (v.kindName == "" || k.HasName(v.kindName)) && (v.verb != restartVerb || canRestart(k))
	}
	if cmd.Flags().Changed("selector") {
		var names []string
		for _, k := range kinds.ListBuiltIn() {
			if isWanted(k) && len(args) == 0 && v.kindName == "" {
				names = append(names, k.Names()[0])
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	nameOf := stopRow.displayName
	if v.kindName != "" {
		nameOf = func(r stopRow) string { return r.Name }
	}
	return v.completeNames(0, isWanted, nameOf)(cmd, args, toComplete)
}

func canRestart(k kinds.Kind) bool {
	_, isRestarted := k.Definition.(kinds.Restarter)
	return isRestarted
}
