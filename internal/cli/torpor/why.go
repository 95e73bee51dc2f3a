// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cli/completion"
)

// explanation is what why says of one object.
type explanation struct {
	Parts      []stopRow          `json:"parts"`
	Conditions []metav1.Condition `json:"conditions"`
}

func (a *commands) newWhyCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Who stopped an object, when, why and until when; what it waits for, and what to do",
		Example: `  # In sentences
  kubectl torpor why clusterdeployment/mycluster

  # For a program
  kubectl torpor why cfapp/shop -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNames(1, anyKind, stopRow.displayName),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := a.getTarget(cmd, output, args[0])
			if err != nil {
				return err
			}
			told := explanation{Parts: rows, Conditions: rows[0].conditions}
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

// getTarget reads the object of a command that takes one.
func (a *commands) getTarget(cmd *cobra.Command, output, name string) ([]stopRow, error) {
	if err := validateOutput(output, false); err != nil {
		return nil, err
	}
	if err := validateTarget(name); err != nil { // Wrong usage is told before any call.
		return nil, err
	}
	kube, err := a.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := limitCommand(cmd)
	defer cancel()
	named, err := kube.findTarget(ctx, name)
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
		lines = append(lines, fmt.Sprintf("%s in namespace %s: %s: %s", r.displayName(), r.Namespace, r.Part, formatCell(r.State)))
		since := formatTime(r.Since)
		if r.Since != nil {
			since += " (" + a.formatAge(r.Since) + " ago)"
		}
		switch {
		case r.Stopped:
			until := formatEnd(r.Until, r.UntilBy, r.By)
			if r.Until == nil {
				until = "somebody starts it"
			}
			lines = append(lines, "  stopped by\t"+formatCell(r.By), "  since\t"+since, "  because\t"+formatCell(r.Reason), "  until\t"+until)
		case r.Since != nil:
			lines = append(lines, "  started by\t"+formatCell(r.By), "  since\t"+since)
		}
		if r.Message != "" {
			lines = append(lines, "  found\t"+formatCell(r.Message))
		}
		if r.SkippedUntil != nil {
			lines = append(lines, "  skipped until\t"+formatEnd(r.SkippedUntil, r.SkippedBy, ""))
		}
		for _, t := range r.Schedule {
			lines = append(lines, "  schedule\t"+t.describe())
		}
		if r.Next != "" {
			lines = append(lines, "  what now\t"+formatCell(r.Next))
		}
		lines = append(lines, "")
	}
	if err := a.writeAligned(lines); err != nil || len(told.Conditions) == 0 {
		return err
	}
	table := []string{"CONDITION\tSTATUS\tSINCE\tREASON\tMESSAGE"}
	for _, c := range told.Conditions {
		table = append(table, strings.Join([]string{
			formatCell(c.Type), formatCell(string(c.Status)), a.formatAge(&c.LastTransitionTime), formatCell(c.Reason), formatCell(c.Message),
		}, "\t"))
	}
	return a.writeAligned(table)
}

// formatEnd says who set the end of a stop, if that was not who stopped it.
func formatEnd(until *metav1.Time, by, stoppedBy string) string {
	text := formatTime(until)
	if until != nil && by != "" && by != stoppedBy {
		text += ", set by " + formatCell(by)
	}
	return text
}

// pastStop is a stop of the record.
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
		Use:   "history KIND/NAME",
		Short: "Who stopped and started an object before: the last ten stops of each of its parts, the newest first",
		Example: `  # As a table
  kubectl torpor history mysqlcluster/test

  # For a program
  kubectl torpor history clusterdeployment/mycluster -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNames(1, anyKind, stopRow.displayName),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := a.getTarget(cmd, output, args[0])
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

// listPastStops has the stops of all parts, the newest first.
func listPastStops(rows []stopRow) []pastStop {
	stops := []pastStop{}
	for _, r := range rows {
		for _, s := range slices.Concat(r.stops, r.pastScheduled) {
			stops = append(stops, pastStop{r.Part, s.Since, s.By, s.Reason, s.Until, s.UntilBy, s.EndedAt, s.StartedBy})
		}
	}
	slices.SortStableFunc(stops, func(a, b pastStop) int {
		return cmp.Or(b.Since.Compare(a.Since.Time), cmp.Compare(a.Part, b.Part))
	})
	return stops
}

func (a *commands) writeHistory(stops []pastStop) error {
	table := []string{"PART\tSTOPPED\tBY\tREASON\tUNTIL\tSTARTED\tBY"}
	for _, s := range stops {
		table = append(table, strings.Join([]string{
			s.Part, formatTime(&s.Since), formatCell(s.By), formatCell(s.Reason), formatEnd(s.Until, s.UntilBy, s.By), formatTime(s.EndedAt), formatCell(s.StartedBy),
		}, "\t"))
	}
	return a.writeAligned(table)
}
