// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

func (a *commands) newSlumberListCommand() *cobra.Command {
	var output string
	var isEverywhere bool
	cmd := &cobra.Command{
		Use:   "list [-A]",
		Short: "List Slumbers and ClusterSlumbers: state, members, windows, and the next change in the time zone of each",
		Long: `List the Slumbers of a namespace and the ClusterSlumbers that select it, or with -A all of them.
A kind that you may not list is left out with a warning.`,
		Example: `  # The schedules of the namespace
  kubectl torpor slumber list

  # All schedules, for a program
  kubectl torpor slumber list -A -o json`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateOutput(output, "json", "yaml", "name"); err != nil {
				return err
			}
			kube, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := limitCommand(cmd)
			defer cancel()
			if isEverywhere {
				kube.namespace = metav1.NamespaceAll
			}
			all, err := a.listExplained(ctx, kube)
			if err != nil {
				return err
			}
			return a.writeSlumbers(kube, all, output)
		},
	}
	cmd.Flags().BoolVarP(&isEverywhere, allNamespacesFlag, "A", false, "the schedules of all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, yaml, name, or empty for text")
	completion.OfferValues(cmd, "output", "json", "yaml", "name")
	return cmd
}

// listExplained returns the Slumbers of the command's namespaces, and the ClusterSlumbers that select these.
func (a *commands) listExplained(ctx context.Context, kube *kubeClient) ([]slumberExplanation, error) {
	all := []slumberExplanation{} // Programs expect an empty list instead of null.
	slumbers, err := kube.listSlumbers(ctx)
	if err != nil && !isHidden(err) {
		return nil, err
	}
	if err != nil {
		fmt.Fprintf(a.Err, "warning: left out Slumbers: %v\n", err)
	}
	for i := range slumbers {
		all = append(all, a.explain(&slumbers[i]))
	}
	ofCluster, err := kube.listClusterSlumbers(ctx)
	if err != nil && !isHidden(err) {
		return nil, err
	}
	if err != nil {
		fmt.Fprintf(a.Err, "warning: left out ClusterSlumbers: %v\n", err)
	}
	var namespaces []metav1.PartialObjectMetadata
	if kube.namespace != metav1.NamespaceAll && len(ofCluster) > 0 {
		if namespaces, err = kube.readNamespaces(ctx); err != nil {
			return nil, err
		}
	}
	for i := range ofCluster {
		s := &ofCluster[i]
		reach, err := slumber.NewReach(s, namespaces, nil)
		if len(namespaces) == 0 || err != nil || reach.Includes(kube.namespace) {
			all = append(all, a.explain(slumber.ViewOf(s)))
		}
	}
	return all, nil
}

func (a *commands) writeSlumbers(kube *kubeClient, all []slumberExplanation, output string) error {
	switch {
	case output == "json" || output == "yaml":
		return a.writeData(output, all)
	case output == "name":
		for _, s := range all {
			fmt.Fprintln(unfitted(a.Out), s.objectName(torporv1alpha1.GroupVersion().Group))
		}
		return nil
	case len(all) == 0:
		fmt.Fprintf(a.Err, "No Slumber found in %s.\n", kube.namespaceText())
		return nil
	}
	headings := []string{"NAME", "STATE", "MEMBERS", "ASLEEP", "NEXT", "WINDOWS"}
	if kube.namespace == metav1.NamespaceAll {
		headings = append([]string{"NAMESPACE"}, headings...)
	}
	var rows [][]string
	for _, s := range all {
		row := []string{
			s.objectName(""), formatCell(string(s.Status.State)), fmt.Sprint(s.Status.Members), fmt.Sprint(s.Status.Asleep), s.describeNext(), s.describeWindows(),
		}
		if kube.namespace == metav1.NamespaceAll {
			row = append([]string{formatCell(s.Namespace)}, row...)
		}
		rows = append(rows, row)
	}
	return newAlignedTable(a.Out, headings...).write(rows)
}

// objectName returns the kind, followed by the group unless that is empty, and the name.
func (s slumberExplanation) objectName(group string) string {
	kind, name, _ := strings.Cut(s.Name, " ")
	if group != "" {
		group = "." + group
	}
	return strings.ToLower(kind) + group + "/" + name
}

func (s slumberExplanation) describeNext() string {
	switch {
	case s.isSuspended:
		return "suspended"
	case len(s.Next) == 0:
		return "-"
	default:
		return fmt.Sprintf("%s at %s", s.Next[0].To, s.Next[0].At.Format(slumber.LocalTime))
	}
}

func (s slumberExplanation) describeWindows() string {
	var windows []string
	for _, w := range s.Windows {
		windows = append(windows, w.Sleep+" to "+w.Wake)
	}
	return formatCell(strings.Join(windows, ", "))
}
