// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// instances shows the servers of a cluster as they were seen last.
func (a *app) instances(list []mocov1beta2.InstanceStatus) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\n"+strings.Join([]string{"INSTANCE", "ROLE", "WRITABLE", "LAG", "RECEIVES", "APPLIES", "GTIDS", "MESSAGE"}, "\t"))
	for _, s := range list {
		message := strings.TrimPrefix(s.Message, fmt.Sprintf("instance %d ", s.Ordinal))
		fmt.Fprintln(w, strings.Join([]string{
			fmt.Sprint(s.Ordinal), roleCell(s), writableCell(s.Writable), lagCell(s.LagSeconds),
			cell([]string{s.IOThread}), cell([]string{s.SQLThread}), cell(oddities(s)), cell([]string{message}),
		}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func roleCell(s mocov1beta2.InstanceStatus) string {
	said := []string{string(s.Role)}
	if s.Stopped {
		said = append(said, "left alone")
	}
	return cell(said)
}

// writableCell is unknown for an instance that did not answer.
func writableCell(writable *bool) string {
	switch {
	case writable == nil:
		return "unknown"
	case *writable:
		return "yes"
	default:
		return "no"
	}
}

func lagCell(seconds *int64) string {
	if seconds == nil {
		return "-"
	}
	return (time.Duration(*seconds) * time.Second).String()
}

// oddities are the transactions that speak against a start.
func oddities(s mocov1beta2.InstanceStatus) []string {
	var said []string
	for _, odd := range []struct{ what, set string }{{"errant", s.ErrantGTIDs}, {"ahead", s.AheadGTIDs}, {"lacks", s.MissingGTIDs}} {
		if odd.set != "" {
			said = append(said, odd.what+" "+odd.set)
		}
	}
	return said
}
