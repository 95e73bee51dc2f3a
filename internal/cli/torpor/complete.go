// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
)

// anyKind is true of each.
func anyKind(stoppableKind) bool { return true }

// completeNames completes the names of objects of some kinds in a shell. A command takes at most limit of them, any number for 0.
func (a *commands) completeNames(limit int, isWanted func(stoppableKind) bool, nameOf func(stopRow) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
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
			if name := nameOf(r); !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// listAnyRows reads the objects of some kinds. A kind that cannot be listed has no names to offer; the others have.
func (kube *kubeClient) listAnyRows(ctx context.Context, isWanted func(stoppableKind) bool) (rows []stopRow) {
	kinds, err := kube.listKinds(ctx)
	if err != nil {
		kinds = stoppableKinds()
	}
	for _, k := range kinds {
		if !isWanted(k) {
			continue
		}
		if found, _, err := kube.listRows(ctx, k, labels.Everything()); err == nil {
			rows = append(rows, found...)
		}
	}
	return rows
}

// completeObjects completes what the verb takes: kinds beside a selector, names without a kind where the kind is known, and else both.
func (v *verbCommand) completeObjects(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	isWanted := func(k stoppableKind) bool {
		return (v.kindName == "" || k.hasName(v.kindName)) && (v.verb != restartVerb || k.restart != nil)
	}
	if cmd.Flags().Changed("selector") {
		var names []string
		for _, k := range stoppableKinds() {
			if isWanted(k) && len(args) == 0 && v.kindName == "" {
				names = append(names, k.names[0])
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
