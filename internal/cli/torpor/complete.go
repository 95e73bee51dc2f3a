// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// anyKind accepts every kind.
func anyKind(kinds.Kind) bool { return true }

// completeNames returns the shell completion of KIND/NAME and KIND NAME. A command accepts at most limit objects. 0
// means no limit.
func (a *commands) completeNames(limit int, isWanted func(kinds.Kind) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		named := len(args)
		isKindApart := named > 0 && !strings.Contains(args[0], "/")
		if isKindApart {
			named--
		}
		if limit > 0 && named >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(cmd, func(ctx context.Context, kube *kubeClient) []string {
			switch {
			case isKindApart:
				return kube.listNames(ctx, isWanted, args[0], "", toComplete)
			case strings.Contains(toComplete, "/"):
				kindName, begun, _ := strings.Cut(toComplete, "/")
				return kube.listNames(ctx, isWanted, kindName, kindName+"/", begun)
			case len(args) > 0:
				return kube.listObjects(ctx, isWanted)
			default:
				return append(kube.listObjects(ctx, isWanted), kube.listKindChoices(ctx, isWanted, toComplete)...)
			}
		}, args)
	}
}

// completeWhy completes the argument of why, which also accepts Slumbers and ClusterSlumbers.
func (a *commands) completeWhy(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	kindName, _, hasName := strings.Cut(toComplete, "/")
	prefix := kindName + "/"
	if len(args) == 1 {
		kindName, prefix, hasName = args[0], "", true
	}
	isSlumber, isOfCluster := isSlumberKind(kindName)
	if isSlumber && hasName && len(args) < 2 {
		return a.complete(cmd, func(ctx context.Context, kube *kubeClient) []string {
			return kube.listSlumberNames(ctx, isOfCluster, prefix)
		}, args)
	}
	choices, directive := a.completeNames(1, anyKind)(cmd, args, toComplete)
	if len(args) == 0 && !hasName && directive != cobra.ShellCompDirectiveError {
		choices = append(choices, slumberKind, clusterSlumberKind)
	}
	return choices, directive
}

// listSlumberNames returns the names of Slumbers or ClusterSlumbers, each with a prefix, or none if they cannot be
// listed.
func (kube *kubeClient) listSlumberNames(ctx context.Context, isOfCluster bool, prefix string) (names []string) {
	if isOfCluster {
		all, _ := kube.listClusterSlumbers(ctx)
		for i := range all {
			names = append(names, prefix+all[i].Name)
		}
		return names
	}
	all, _ := kube.listSlumbers(ctx)
	for i := range all {
		names = append(names, prefix+all[i].Name)
	}
	return names
}

// complete connects to the API server, and returns the choices that are not already arguments.
func (a *commands) complete(cmd *cobra.Command, list func(context.Context, *kubeClient) []string, args []string) ([]string, cobra.ShellCompDirective) {
	kube, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	choices := slices.DeleteFunc(list(ctx, kube), func(choice string) bool { return slices.Contains(args, choice) })
	return slices.Compact(choices), cobra.ShellCompDirectiveNoFileComp
}

// listNames returns the names of the objects of the given kinds, each with a prefix: the display name if the object
// has one, or the object's own name if the user has begun to type that.
func (kube *kubeClient) listNames(ctx context.Context, isWanted func(kinds.Kind) bool, kindNames, prefix, begun string) (names []string) {
	for kindName := range strings.SplitSeq(kindNames, ",") {
		k, err := kube.findKind(ctx, kindName, kindName)
		if err != nil || !isWanted(k) {
			continue
		}
		rows, err := kube.listChosen(ctx, k, labels.Everything())
		if err != nil {
			continue
		}
		for _, r := range rows {
			name := r.ShownName()
			if begun != "" && strings.HasPrefix(r.Name, begun) {
				name = r.Name
			}
			names = append(names, prefix+name)
		}
	}
	return names
}

// listObjects returns KIND/NAME of each object of the accepted kinds. A kind that cannot be listed is skipped.
func (kube *kubeClient) listObjects(ctx context.Context, isWanted func(kinds.Kind) bool) (names []string) {
	for _, k := range kube.listWanted(ctx, isWanted) {
		names = append(names, kube.listNames(ctx, anyKind, k.Names()[0], k.Names()[0]+"/", "")...)
	}
	return names
}

// listKindChoices returns the accepted kinds, each with the kinds before the last comma as its prefix.
func (kube *kubeClient) listKindChoices(ctx context.Context, isWanted func(kinds.Kind) bool, toComplete string) (names []string) {
	before := toComplete[:strings.LastIndex(toComplete, ",")+1]
	for _, k := range kube.listWanted(ctx, isWanted) {
		names = append(names, before+k.Names()[0])
	}
	return names
}

// listWanted returns the accepted kinds, or only the built-in kinds if StopAdapters cannot be listed.
func (kube *kubeClient) listWanted(ctx context.Context, isWanted func(kinds.Kind) bool) []kinds.Kind {
	known, err := kube.listKinds(ctx)
	if err != nil {
		known = kinds.ListBuiltIn()
	}
	return slices.DeleteFunc(slices.Clone(known), func(k kinds.Kind) bool { return !isWanted(k) })
}

// completeNamespaces returns namespace/NAME for a command that also accepts namespaces; isOffered is false if the
// user is typing another argument.
func (a *commands) completeNamespaces(cmd *cobra.Command, args []string, toComplete string) (choices []string, directive cobra.ShellCompDirective, isOffered bool) {
	kindName, _, hasName := strings.Cut(toComplete, "/")
	prefix := kindName + "/"
	if len(args) > 0 && !hasName {
		kindName, prefix, hasName, args = args[0], "", true, args[1:]
	}
	if !hasName || !isNamespaceKind(kindName) {
		return nil, 0, false
	}
	choices, directive = a.complete(cmd, func(ctx context.Context, kube *kubeClient) (names []string) {
		kube.namespace = metav1.NamespaceAll
		all, err := kube.readNamespaces(ctx)
		if err != nil {
			return nil
		}
		for i := range all {
			names = append(names, prefix+all[i].Name)
		}
		return names
	}, args)
	return choices, directive, true
}

// completeStatus completes the arguments of the command status.
func (a *commands) completeStatus(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if choices, directive, isOffered := a.completeNamespaces(cmd, args, toComplete); isOffered {
		return choices, directive
	}
	choices, directive := a.completeNames(0, anyKind)(cmd, args, toComplete)
	return offerNamespaceKind(choices, args, toComplete), directive
}

// offerNamespaceKind adds the kind Namespace to the choices for the first argument.
func offerNamespaceKind(choices, args []string, toComplete string) []string {
	if len(args) > 0 || strings.Contains(toComplete, "/") {
		return choices
	}
	return append(choices, strings.TrimSuffix(namespacePrefix, "/"))
}

// completeObjects completes the arguments of a verb.
func (v *verbCommand) completeObjects(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if takesNamespaces := v.kindName == "" && v.verb != restartVerb && !v.isSet(cmd.Flags()); takesNamespaces {
		if choices, directive, isOffered := v.completeNamespaces(cmd, args, toComplete); isOffered {
			return choices, directive
		}
		choices, directive := v.completeNames(0, anyKind)(cmd, args, toComplete)
		return offerNamespaceKind(choices, args, toComplete), directive
	}
	return v.completeSelected(cmd, args, toComplete, &v.selection, func(k kinds.Kind) bool { return v.verb != restartVerb || canRestart(k) })
}

// completeSelected completes the arguments of a command with a selection: kinds if --selector or --all is set, names
// if the command has one kind, and otherwise kinds and objects.
func (a *commands) completeSelected(cmd *cobra.Command, args []string, toComplete string, s *selection, isWanted func(kinds.Kind) bool) ([]string, cobra.ShellCompDirective) {
	isSelected := s.isSet(cmd.Flags())
	switch {
	case isSelected && (s.kindName != "" || len(args) > 0):
		return nil, cobra.ShellCompDirectiveNoFileComp
	case isSelected:
		return a.complete(cmd, func(ctx context.Context, kube *kubeClient) []string {
			return kube.listKindChoices(ctx, isWanted, toComplete)
		}, nil)
	case s.kindName != "" && !strings.Contains(toComplete, "/"):
		return a.complete(cmd, func(ctx context.Context, kube *kubeClient) []string {
			return kube.listNames(ctx, isWanted, s.kindName, "", toComplete)
		}, args)
	default:
		return a.completeNames(0, isWanted)(cmd, args, toComplete)
	}
}

func canRestart(k kinds.Kind) bool {
	_, isRestarted := k.Definition.(kinds.Restarter)
	return isRestarted
}
