// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

const (
	selectorFlag      = "selector"
	allFlag           = "all"
	allNamespacesFlag = "all-namespaces"
)

// selection defines the objects of a command: named objects, or all objects of one or more kinds, optionally with
// labels.
type selection struct {
	// kindName is the kind of a command for a single kind, whose arguments are names.
	kindName            string
	selector            string
	isAll, isEverywhere bool
}

// describeObjects returns the arguments for the usage line of a command.
func (s *selection) describeObjects() string {
	if s.kindName != "" {
		return "(NAME... | -l SELECTOR | --all) [-A]"
	}
	return "(KIND/NAME... | KIND NAME... | KIND[,KIND...] (-l SELECTOR | --all)) [-A]"
}

func (s *selection) addFlags(f *pflag.FlagSet) {
	f.BoolVarP(&s.isEverywhere, allNamespacesFlag, "A", false, "with --selector or --all: the objects of all namespaces")
	f.StringVarP(&s.selector, selectorFlag, "l", "", "labels of the objects, such as team=a, instead of names")
	f.BoolVar(&s.isAll, allFlag, false, "all objects of the kinds, instead of names")
}

// isSet reports whether the flags select objects, so that no names are expected.
func (s *selection) isSet(f *pflag.FlagSet) bool { return s.isAll || f.Changed(selectorFlag) }

// findTargets returns the objects that the arguments and flags define. Their part is not set.
func (s *selection) findTargets(ctx context.Context, cmd *cobra.Command, kube *kubeClient, args []string) ([]target, error) {
	isSelected := s.isSet(cmd.Flags())
	switch {
	case s.isAll && cmd.Flags().Changed(selectorFlag):
		return nil, exit.WrongUsage("expected either --selector or --all, found both")
	case s.isEverywhere && !isSelected:
		return nil, exit.WrongUsage("--all-namespaces: expected --selector or --all with it, found neither")
	}
	parsed, err := s.parse(args, isSelected)
	if err != nil {
		return nil, err
	}
	if !isSelected && len(parsed.objects) > 0 {
		return kube.findNamed(ctx, parsed.objects)
	}
	chosen, err := kube.findKinds(ctx, parsed.kindNames)
	if err != nil {
		return nil, err
	}
	if !isSelected {
		return nil, exit.WrongUsage("expected the names of objects after %q, --selector or --all, found none of them", args[0])
	}
	selector, err := parseSelector(s.selector, !s.isAll)
	if err != nil {
		return nil, err
	}
	if s.isEverywhere {
		kube.namespace = metav1.NamespaceAll
	}
	targets, err := kube.selectTargets(ctx, chosen, selector)
	if err == nil && len(targets) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "No %s found in %s.\n", s.describeMissing(chosen), kube.namespaceText())
	}
	return targets, err
}

// parse returns named objects, or the kinds to select from.
func (s *selection) parse(args []string, isSelected bool) (parsed arguments, err error) {
	if s.kindName != "" {
		parsed, err = parseNames(s.kindName, args)
		if isSelected && len(parsed.objects) == 1 && parsed.objects[0].name == s.kindName {
			parsed.objects = nil // The user may specify the kind, although the command implies it.
		}
		parsed.kindNames = []string{s.kindName}
	} else {
		parsed, err = parseArguments(args)
	}
	switch {
	case err != nil:
		return arguments{}, err
	case isSelected && len(parsed.objects) > 0:
		return arguments{}, exit.WrongUsage("expected one of names, --selector and --all, found two; with --selector or --all, specify only the kind")
	case isSelected && len(parsed.kindNames) == 0:
		return arguments{}, exit.WrongUsage("expected a kind with --selector or --all, such as cfapp, found none")
	case !isSelected && len(parsed.objects) == 0 && len(args) == 0:
		return arguments{}, exit.WrongUsage("expected the names of objects, --selector or --all, found none of them")
	}
	return parsed, nil
}

func (s *selection) describeMissing(chosen []kinds.Kind) string {
	var names []string
	for _, k := range chosen {
		names = append(names, k.GVK().Kind)
	}
	text := strings.Join(names, " or ")
	if s.isAll {
		return text
	}
	return text + " with these labels"
}

// selectTargets returns the objects of the kinds with these labels.
func (kube *kubeClient) selectTargets(ctx context.Context, chosen []kinds.Kind, selector labels.Selector) ([]target, error) {
	var targets []target
	for _, k := range chosen {
		rows, err := kube.listChosen(ctx, k, selector)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			t := target{kind: k, namespace: r.Namespace, name: r.Name, shownName: r.ShownName()}
			if last := len(targets) - 1; last < 0 || targets[last].key() != t.key() { // The rows of one object are adjacent.
				targets = append(targets, t)
			}
		}
	}
	return targets, nil
}

// listChosen reads the objects of a kind that the user named. It is an error if they cannot be listed.
func (kube *kubeClient) listChosen(ctx context.Context, k kinds.Kind, selector labels.Selector) ([]stopRow, error) {
	rows, isServed, err := kube.listRows(ctx, k, selector)
	switch {
	case errors.Is(err, errForbidden):
		return nil, fmt.Errorf("expected permission to list %ss in %s, found none; ask for the permission or choose another namespace with -n", k.GVK().Kind, kube.namespaceText())
	case err != nil:
		return nil, err
	case !isServed:
		return nil, fmt.Errorf("expected the API server to serve %s, found that it does not; install the CRD", k.GVK().GroupVersion())
	}
	hideSharedNames(rows, rows)
	return rows, nil
}
