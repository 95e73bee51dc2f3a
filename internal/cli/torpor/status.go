// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

type statusCommand struct {
	*commands
	isEverywhere, watches bool
	selector, output      string
}

func (a *commands) newStatusCommand() *cobra.Command {
	s := &statusCommand{commands: a}
	cmd := &cobra.Command{
		Use:   "status [KIND/NAME... | KIND NAME... | KIND[,KIND...] | namespace/NAME] [-l SELECTOR] [-A]",
		Short: "List stoppable objects with their state, time, requester, reason, end and next step",
		Long: `List stoppable objects with their state, time, requester, reason, end and next step.
Stuck and failed objects come first, then overdue stops, then changing, stopped and running objects.
SINCE and BY describe the stop, or the last start of a running object. ` + listWorkloads() + ` and objects of StopAdapters are listed
only if a user or a Slumber has stopped them, or if you specify their kind or namespace/NAME. A kind that the API server does not serve is left out. A kind that
you may not list is left out with a warning. Both are errors if the kind is named.
With --watch, --output json prints one object in each line.`,
		Example: `  # List the objects of the namespace, and of all namespaces
  kubectl torpor status
  kubectl torpor status -A

  # List everything in a namespace that can be stopped
  kubectl torpor status namespace/dev

  # List the objects of a team, with the messages of their statuses
  kubectl torpor status -l team=a -o wide

  # List all clusters and Deployments of the namespace
  kubectl torpor status cd,deploy

  # Print changes until you interrupt the command
  kubectl torpor status -A -w
  kubectl torpor status cd/fleet -w

  # Print two objects for a program
  kubectl torpor status mysqlcluster/test cfapp/shop -o json`,
		ValidArgsFunction: a.completeStatus,
		RunE:              s.run,
	}
	cmd.Flags().BoolVarP(&s.isEverywhere, allNamespacesFlag, "A", false, "the objects of all namespaces")
	cmd.Flags().StringVarP(&s.selector, selectorFlag, "l", "", "labels of the objects, such as team=a, instead of names")
	cmd.Flags().BoolVarP(&s.watches, watchFlag, "w", false, "keep running, and print changes")
	cmd.Flags().StringVarP(&s.output, "output", "o", "", "json, yaml, name, wide, or empty for text")
	completion.OfferValues(cmd, "output", "json", "yaml", "name", "wide")
	return cmd
}

func (s *statusCommand) run(cmd *cobra.Command, args []string) error {
	if err := validateOutput(s.output, "json", "yaml", "name", "wide"); err != nil {
		return err
	}
	parsed, err := parseArguments(args)
	if err != nil {
		return err
	}
	if len(parsed.objects) > 0 && (s.isEverywhere || cmd.Flags().Changed(selectorFlag)) {
		return exit.WrongUsage("expected either KIND/NAME or --all-namespaces and --selector, found %q with them", parsed.objects[0])
	}
	namespace, err := parseOneNamespace(args)
	if err != nil {
		return err
	}
	selector, err := parseSelector(s.selector, cmd.Flags().Changed(selectorFlag))
	if err != nil {
		return err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	kube, err := s.connect()
	if err != nil {
		return err
	}
	if s.isEverywhere {
		kube.namespace = metav1.NamespaceAll
	}
	var rows []stopRow
	var scopes []watchScope
	switch {
	case namespace != "":
		rows, err = s.listNamespaceRows(ctx, kube, namespace)
	case len(parsed.objects) > 0:
		rows, scopes, err = kube.getAllRows(ctx, parsed.objects)
	case len(parsed.kindNames) > 0:
		rows, scopes, err = s.listChosenRows(ctx, kube, parsed.kindNames, selector)
	default:
		rows, err = s.listAllRows(ctx, kube, selector, func(r stopRow) bool { return !r.IsUntouched })
	}
	err = errors.Join(err, s.previewSchedules(ctx, kube, rows))
	hideSharedNames(rows, rows)
	sortByAttention(rows, s.clock.Now())
	if s.watches && err == nil {
		return s.follow(ctx, kube, scopes, selector, rows)
	}
	// After an error, still print the rows that were found.
	if err != nil && len(rows) == 0 {
		return err
	}
	return errors.Join(s.write(rows), err)
}

// parseSelector returns an error for an empty selector, which is more likely an unset variable than a request for
// all objects.
func parseSelector(text string, isGiven bool) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found %q: %w", text, err)
	}
	if isGiven && selector.Empty() {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found none")
	}
	return selector, nil
}

// getAllRows reads the named objects. If an object is missing, the rows of the other objects are still returned.
func (kube *kubeClient) getAllRows(ctx context.Context, objects []namedObject) (rows []stopRow, scopes []watchScope, err error) {
	targets, err := kube.findNamed(ctx, objects)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, t := range targets {
		found, err := kube.getRows(ctx, t)
		if err != nil {
			errs = append(errs, err)
		}
		rows = append(rows, found...)
		scopes = append(scopes, watchScope{kind: t.kind, name: t.name, selector: labels.Everything(), isNamed: true})
	}
	return rows, scopes, errors.Join(errs...)
}

// listChosenRows reads the objects of the kinds that the user named, including those that were never stopped.
func (s *statusCommand) listChosenRows(ctx context.Context, kube *kubeClient, names []string, selector labels.Selector) (rows []stopRow, scopes []watchScope, err error) {
	chosen, err := kube.findKinds(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range chosen {
		found, err := kube.listChosen(ctx, k, selector)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, found...)
		scopes = append(scopes, watchScope{kind: k, selector: selector, isNamed: true})
	}
	if len(rows) == 0 {
		s.reportNothing(kube)
	}
	return rows, scopes, nil
}

func (s *statusCommand) reportNothing(kube *kubeClient) {
	fmt.Fprintf(s.Err, "No stoppable object found in %s.\n", kube.namespaceText())
}

// listNamespaceRows reads the objects of a namespace, including those that were never stopped. Objects that a
// controller owns are omitted unless they were stopped.
func (s *statusCommand) listNamespaceRows(ctx context.Context, kube *kubeClient, name string) ([]stopRow, error) {
	kube.namespace = name
	if err := kube.checkNamespace(ctx); err != nil {
		return nil, err
	}
	return s.listAllRows(ctx, kube, labels.Everything(), func(r stopRow) bool { return !r.IsUntouched || !r.isOwned })
}

// listAllRows reads the objects of all kinds, and returns the shown rows. It returns an error if all kinds are
// forbidden, or if there are no rows and no CRD of Torpor is installed, because an empty table would be misleading.
func (s *statusCommand) listAllRows(ctx context.Context, kube *kubeClient, selector labels.Selector, isShown func(stopRow) bool) ([]stopRow, error) {
	var rows []stopRow
	var errs []error
	var served, forbidden []string
	known, err := kube.listKinds(ctx)
	if err != nil {
		return nil, err
	}
	hasOwn := false
	for _, k := range known {
		found, isServed, err := kube.listRows(ctx, k, selector)
		found = slices.DeleteFunc(found, func(r stopRow) bool { return !isShown(r) })
		if isServed {
			served = append(served, k.GVK().Kind+"s")
			hasOwn = hasOwn || !k.IsSwitched()
		}
		switch {
		case errors.Is(err, errForbidden):
			forbidden = append(forbidden, k.GVK().Kind+"s")
		case err != nil:
			errs = append(errs, err)
		}
		rows = append(rows, found...)
	}
	switch {
	case !hasOwn && len(rows)+len(errs) == 0:
		return nil, errors.New(
			"expected the API server to serve ClusterDeployments, MySQLClusters or CFApps, or stopped objects of another kind, found neither; install the CRDs")
	case len(forbidden) > 0 && len(forbidden) == len(served):
		return nil, fmt.Errorf("expected permission to list %s in %s, found that all are forbidden; ask for the permission or choose another namespace with -n",
			strings.Join(forbidden, ", "), kube.namespaceText())
	case len(forbidden) > 0:
		fmt.Fprintf(s.Err, "warning: left out kinds that you may not list in %s: %s\n", kube.namespaceText(), strings.Join(forbidden, ", "))
	}
	if len(rows) == 0 && len(errs) == 0 {
		s.reportNothing(kube)
	}
	return rows, errors.Join(errs...)
}

func (s *statusCommand) write(rows []stopRow) error {
	switch {
	case s.output == "json" || s.output == "yaml":
		return s.writeData(s.output, append([]stopRow{}, rows...))
	case s.output == "name":
		return s.writeNames(rows)
	case len(rows) == 0:
		return nil
	}
	return newAlignedTable(s.Out, s.headings()...).write(s.cellsOf(rows))
}

// writeNames prints each object once, as kubectl get -o name does.
func (s *statusCommand) writeNames(rows []stopRow) error {
	written := map[rowKey]bool{}
	for _, r := range rows {
		object := rowKey{kind: r.GroupKind, namespace: r.Namespace, name: r.Name}
		if written[object] {
			continue
		}
		written[object] = true
		if _, err := fmt.Fprintln(unfitted(s.Out), kinds.ObjectName(r.GroupKind, r.Name)); err != nil {
			return fmt.Errorf("write the names: %w", err)
		}
	}
	return nil
}

func (s *statusCommand) headings() []string {
	headings := []string{"NAME", "PART", "STATE", "SINCE", "BY", "REASON", "UNTIL", "NEXT"}
	if s.output == "wide" {
		headings = append(headings, "MESSAGE")
	}
	if s.isEverywhere {
		headings = slices.Insert(headings, 0, "NAMESPACE")
	}
	return headings
}

func (s *statusCommand) cellsOf(rows []stopRow) [][]string {
	var table [][]string
	for _, r := range rows {
		cells := []string{
			r.displayName(), r.Part, formatCell(r.State), s.formatAge(r.Since), formatCell(r.By), formatCell(r.Reason),
			stoprecord.FormatEnd(r.Until, s.clock.Now()), formatCell(s.nextText(r)),
		}
		if s.output == "wide" {
			cells = append(cells, formatCell(r.Message))
		}
		if s.isEverywhere {
			cells = slices.Insert(cells, 0, r.Namespace)
		}
		table = append(table, cells)
	}
	return table
}

func (a *commands) formatAge(at *metav1.Time) string {
	if at == nil {
		return "-"
	}
	return duration.HumanDuration(a.clock.Since(at.Time))
}

// formatTime formats a time in the time zone of the user.
func (a *commands) formatTime(at *metav1.Time) string {
	if at == nil {
		return "-"
	}
	return stoprecord.FormatLocal(at.Time, a.clock.Now().Location())
}

// formatUTC formats a time for programs.
func formatUTC(at *metav1.Time) string { return at.UTC().Format(time.RFC3339) }

// formatCell turns text written by users into one line without control characters, and empty text into a dash.
func formatCell(text string) string {
	printable := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return -1
		}
	}, text)
	return cmp.Or(strings.Join(strings.Fields(printable), " "), "-")
}
