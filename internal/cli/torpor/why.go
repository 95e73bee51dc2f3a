// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cli/completion"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// explanation is the output of the command why.
type explanation struct {
	Parts      []stopRow          `json:"parts"`
	Conditions []metav1.Condition `json:"conditions"`
}

func (a *commands) newWhyCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "why (KIND/NAME | KIND NAME)",
		Short: "Show the requester, time, reason and end of an object's stop, the pending condition, and the next step",
		Example: `  # Print sentences
  kubectl torpor why clusterdeployment/mycluster

  # Show the members of a schedule, and its next changes in its own time zone
  kubectl torpor why slumber/nights
  kubectl torpor why clusterslumber/development-nights

  # For a program
  kubectl torpor why cfapp/shop -o yaml`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeWhy,
		RunE: func(cmd *cobra.Command, args []string) error {
			if object, err := parseObject(args); err == nil && validateOutput(output, "json", "yaml") == nil {
				if isSlumber, _ := isSlumberKind(object.kindName); isSlumber {
					return a.explainSlumber(cmd, object, output)
				}
			}
			rows, err := a.getTarget(cmd, output, args)
			if err != nil {
				return err
			}
			told := explanation{Parts: rows, Conditions: rows[0].Conditions}
			if output != "" {
				return a.writeData(output, told)
			}
			return a.writeExplanation(told)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, yaml, or empty for text")
	completion.OfferValues(cmd, "output", "json", "yaml")
	return cmd
}

// getTarget returns the rows of the one object that the arguments name.
func (a *commands) getTarget(cmd *cobra.Command, output string, args []string) ([]stopRow, error) {
	if err := validateOutput(output, "json", "yaml"); err != nil {
		return nil, err
	}
	object, err := parseObject(args)
	if err != nil {
		return nil, err
	}
	kube, err := a.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	named, err := kube.findTarget(ctx, object)
	if err != nil {
		return nil, err
	}
	rows, err := kube.getRows(ctx, named)
	if err != nil {
		return nil, err
	}
	return rows, a.previewSchedules(ctx, kube, rows)
}

func (a *commands) writeExplanation(told explanation) error {
	var lines []string
	for _, r := range told.Parts {
		lines = append(lines, r.beginExplanation()...)
		since := a.formatTime(r.Since)
		if r.Since != nil {
			since += " (" + a.formatAge(r.Since) + " ago)"
		}
		switch {
		case r.Stopped:
			until := addAuthor(stoprecord.FormatEnd(r.Until, a.clock.Now()), r.UntilBy, r.By)
			if r.Until == nil {
				until = "a manual start"
			}
			lines = append(lines, "  stopped by\t"+formatCell(r.By), "  since\t"+since, "  because\t"+formatCell(r.Reason), "  until\t"+until)
		case r.Since != nil:
			lines = append(lines, "  started by\t"+formatCell(r.By), "  since\t"+since)
		}
		if r.Message != "" {
			lines = append(lines, "  found\t"+formatCell(r.Message))
		}
		if r.SkippedUntil != nil {
			lines = append(lines, "  skipped until\t"+addAuthor(a.formatTime(r.SkippedUntil), r.SkippedBy, ""))
		}
		for _, t := range r.Schedule {
			lines = append(lines, "  schedule\t"+t.describe(a.formatTime))
		}
		if r.Next != "" {
			lines = append(lines, "  next step\t"+formatCell(a.nextInFull(r)))
		}
		lines = append(lines, "")
	}
	if err := a.writeAligned(lines); err != nil || len(told.Conditions) == 0 {
		return err
	}
	return a.writeConditions(told.Conditions)
}

func (a *commands) writeConditions(conditions []metav1.Condition) error {
	var rows [][]string
	for _, c := range conditions {
		rows = append(rows, []string{
			formatCell(c.Type), formatCell(string(c.Status)), a.formatAge(&c.LastTransitionTime), formatCell(c.Reason), formatCell(c.Message),
		})
	}
	return newAlignedTable(a.Out, "CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE").write(rows)
}

// beginExplanation returns the first lines, which contain the object and its state.
func (r stopRow) beginExplanation() []string {
	first := fmt.Sprintf("%s in namespace %s: %s: %s", r.displayName(), r.Namespace, r.Part, formatCell(r.State))
	if r.ShownName() == r.Name {
		return []string{first}
	}
	return []string{first, "  object\t" + r.Name}
}

// addAuthor appends the user who set an end to the end, unless that user also requested the stop.
func addAuthor(until, by, stoppedBy string) string {
	if until == "-" || by == "" || by == stoppedBy {
		return until
	}
	return until + ", set by " + formatCell(by)
}

// pastStop is an ended or current stop from the record.
type pastStop struct {
	Part      string       `json:"part"`
	Since     metav1.Time  `json:"since"`
	By        string       `json:"by,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Until     *metav1.Time `json:"until,omitempty"`
	UntilBy   string       `json:"untilBy,omitempty"`
	EndedAt   *metav1.Time `json:"endedAt,omitempty"`
	StartedBy string       `json:"startedBy,omitempty"`
}

func (a *commands) newHistoryCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "history (KIND/NAME | KIND NAME)",
		Short: "List the recorded stops of each part of an object, newest first, and the requester of each start",
		Example: `  # Print a table
  kubectl torpor history mysqlcluster/test

  # For a program
  kubectl torpor history clusterdeployment/mycluster -o json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeNames(1, anyKind),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := a.getTarget(cmd, output, args)
			if err != nil {
				return err
			}
			stops := listPastStops(rows)
			if output != "" {
				return a.writeData(output, stops)
			}
			if len(stops) == 0 {
				fmt.Fprintf(a.Err, "No stop of %s is recorded.\n", rows[0].displayName())
				return nil
			}
			return a.writeHistory(stops)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, yaml, or empty for text")
	completion.OfferValues(cmd, "output", "json", "yaml")
	return cmd
}

// listPastStops returns the stops of all parts, the newest first.
func listPastStops(rows []stopRow) []pastStop {
	stops := []pastStop{}
	for _, r := range rows {
		for _, s := range slices.Concat(r.Stops, r.PastScheduled) {
			stops = append(stops, pastStop{r.Part, s.Since, s.By, s.Reason, s.Until, s.UntilBy, s.EndedAt, s.StartedBy})
		}
	}
	slices.SortStableFunc(stops, func(a, b pastStop) int {
		return cmp.Or(b.Since.Compare(a.Since.Time), cmp.Compare(a.Part, b.Part))
	})
	return stops
}

func (a *commands) writeHistory(stops []pastStop) error {
	var rows [][]string
	for _, s := range stops {
		rows = append(rows, []string{
			s.Part, a.formatTime(&s.Since), formatCell(s.By), formatCell(s.Reason), addAuthor(a.formatTime(s.Until), s.UntilBy, s.By),
			a.formatTime(s.EndedAt), formatCell(s.StartedBy),
		})
	}
	return newAlignedTable(a.Out, "PART", "STOPPED", "BY", "REASON", "UNTIL", "STARTED", "BY").write(rows)
}
