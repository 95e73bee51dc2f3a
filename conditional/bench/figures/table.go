// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Unit is what a row's numbers count.
type Unit int

// The units of the table.
const (
	Seconds Unit = iota
	Count
	Bytes
	Milliseconds
)

// Row is one line of the table.
type Row struct {
	What string
	Unit Unit
	// Ours and Plain name the figures that are shown, in this order.
	Ours, Plain []string
	// Limits are the largest values that Ours may have, in the same order; less of them than Ours judge only the first.
	Limits []float64
}

// Missed tells whether a figure of the row is above its limit.
func (r Row) Missed(flat map[string]float64) bool {
	for i, limit := range r.Limits {
		if flat[r.Ours[i]] > limit {
			return true
		}
	}
	return false
}

func (r Row) measured(flat map[string]float64) bool {
	_, ok := flat[r.Ours[0]]
	return ok
}

func (r Row) met(flat map[string]float64) string {
	switch {
	case len(r.Limits) == 0:
		return "-"
	case r.Missed(flat):
		return "MISSED"
	}
	return "yes"
}

// Missed returns the rows that were measured and are above a limit.
func Missed(rows []Row, flat map[string]float64) []string {
	var names []string
	for _, r := range rows {
		if r.measured(flat) && r.Missed(flat) {
			names = append(names, r.What)
		}
	}
	return names
}

// Print writes the rows that were measured.
func Print(out io.Writer, rows []Row, flat map[string]float64) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tours (p50 / p99 / max)\tplain controller-runtime\ttarget\tmet")
	for _, r := range rows {
		if r.measured(flat) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.What, r.values(r.Ours, flat), r.values(r.Plain, flat), r.target(), r.met(flat))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func (r Row) values(names []string, flat map[string]float64) string {
	var all []string
	for _, name := range names {
		if v, ok := flat[name]; ok {
			all = append(all, show(v, r.Unit))
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, " / ")
}

func (r Row) target() string {
	var all []string
	for _, limit := range r.Limits {
		all = append(all, show(limit, r.Unit))
	}
	if len(all) == 0 {
		return "-"
	}
	return "≤ " + strings.Join(all, " / ")
}

// show writes a number with three digits that matter.
func show(v float64, unit Unit) string {
	switch unit {
	case Seconds:
		if math.Abs(v) < 1 {
			return digits(v*1000) + " ms"
		}
		return digits(v) + " s"
	case Milliseconds:
		return digits(v) + " ms"
	case Bytes:
		if math.Abs(v) >= 10<<10 {
			return digits(v/(1<<10)) + " KiB"
		}
		return digits(v) + " B"
	case Count:
	}
	return digits(v)
}

func digits(v float64) string {
	decimals := 0
	if size := math.Abs(v); size < 100 && v != math.Trunc(v) {
		decimals = 1
		if size < 10 {
			decimals = 2
		}
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
