// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// clusterSelection selects clusters by their names or by their labels.
type clusterSelection struct{ selector string }

func (p *clusterSelection) addSelectorFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.selector, "selector", "l", "", "labels of the MySQLClusters, such as team=a, instead of names")
}

// clusterNames returns the names of the selected clusters.
func (p *clusterSelection) clusterNames(ctx context.Context, kube *kubeClient, cmd *cobra.Command, args []string) ([]string, error) {
	if !cmd.Flags().Changed("selector") {
		return slices.Compact(slices.Sorted(slices.Values(args))), nil
	}
	selector, err := p.parseSelector()
	if err != nil {
		return nil, err
	}
	found, err := kube.listClusters(ctx, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("expected MySQLClusters with the labels %q in namespace %q, found none", p.selector, kube.namespace)
	}
	return namesOf(found), nil
}

// parseSelector refuses an empty selector: it would select every cluster, and is more likely a variable that was not set.
func (p *clusterSelection) parseSelector() (labels.Selector, error) {
	selector, err := labels.Parse(p.selector)
	if err != nil {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found %q: %w", p.selector, err)
	}
	if selector.Empty() {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found none")
	}
	return selector, nil
}

// validateArgs requires names or a selector.
func (p *clusterSelection) validateArgs(cmd *cobra.Command, validateArgs []string) error {
	bySelector := cmd.Flags().Changed("selector")
	switch {
	case bySelector && len(validateArgs) > 0:
		return fmt.Errorf("expected names or --selector, found both")
	case !bySelector && len(validateArgs) == 0:
		return fmt.Errorf("expected the name of a MySQLCluster or --selector, found neither")
	default:
		return nil
	}
}

func namesOf(clusters []mocov1beta2.MySQLCluster) []string {
	var names []string
	for i := range clusters {
		names = append(names, clusters[i].Name)
	}
	return names
}

// completeClusterNames completes the names of clusters in a shell. A command takes at most limit names, any number for 0.
func (a *commands) completeClusterNames(limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kube, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := kube.listClusters(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := slices.DeleteFunc(namesOf(found), func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
