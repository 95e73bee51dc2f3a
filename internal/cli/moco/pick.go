// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pick is which clusters are meant: those with the names, or those with the labels.
type pick struct {
	selector string
}

func (p *pick) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.selector, "selector", "l", "", "labels of the MySQLClusters, such as team=a, instead of names")
}

// names are the names of the clusters that are meant.
func (p *pick) names(ctx context.Context, h *hub, cmd *cobra.Command, args []string) ([]string, error) {
	if !cmd.Flags().Changed("selector") {
		return slices.Compact(slices.Sorted(slices.Values(args))), nil
	}
	selector, err := p.parsed()
	if err != nil {
		return nil, err
	}
	found, err := h.clusters(ctx, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("expected MySQLClusters with the labels %q in namespace %q, found none", p.selector, h.namespace)
	}
	var names []string
	for _, c := range found {
		names = append(names, c.Name)
	}
	return names, nil
}

// parsed refuses an empty selector, which would mean every cluster where somebody forgot something.
func (p *pick) parsed() (labels.Selector, error) {
	selector, err := labels.Parse(p.selector)
	if err != nil {
		return nil, wrongUsage("--selector: expected labels such as team=a, found %q: %w", p.selector, err)
	}
	if selector.Empty() {
		return nil, wrongUsage("--selector: expected labels such as team=a, found none")
	}
	return selector, nil
}

// args demands names or a selector.
func (p *pick) args(cmd *cobra.Command, args []string) error {
	bySelector := cmd.Flags().Changed("selector")
	switch {
	case bySelector && len(args) > 0:
		return fmt.Errorf("expected names or --selector, found both")
	case !bySelector && len(args) == 0:
		return fmt.Errorf("expected the name of a MySQLCluster or --selector, found neither")
	default:
		return nil
	}
}

// complete lists the clusters for the shell; only limits how many names a command takes, 0 for any.
func (a *app) complete(limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		h, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := h.clusters(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, c := range found {
			if !slices.Contains(args, c.Name) {
				names = append(names, c.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
