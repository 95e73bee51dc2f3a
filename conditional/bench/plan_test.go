// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/trial"
)

func TestCommandLine(t *testing.T) {
	with := func(p plan, change func(*plan)) plan {
		p.out, p.only = "conditional.json", trial.Topics()
		change(&p)
		return p
	}
	tests := map[string]struct {
		args string
		want plan
	}{
		"nothing means everything":       {"", with(full(), func(*plan) {})},
		"quick means small":              {"--quick", with(quick(), func(*plan) {})},
		"a size beside quick wins":       {"--installs 7 --quick", with(quick(), func(p *plan) { p.sizes.Installs = 7 })},
		"quick may be spelt out":         {"-quick=true", with(quick(), func(*plan) {})},
		"one measurement for a time":     {"--only dormant,storm --dormant-time 2m", with(full(), func(p *plan) { p.only, p.sizes.DormantTime = []string{"dormant", "storm"}, 2*time.Minute })},
		"what a missed target shall be":  {"-strict", with(full(), func(p *plan) { p.strict = true })},
		"where the figures shall be put": {"--out=x/y.json", with(full(), func(p *plan) { p.out = "x/y.json" })},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.Fields(tt.args), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("wrong plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadCommandLine(t *testing.T) {
	tests := map[string]struct{ args, says string }{
		"a measurement that does not exist": {"--only storms", `found "storms"`},
		"no measurement at all":             {"--storm 0", "greater than 0"},
		"no time":                           {"--dormant-time -1s", "greater than 0"},
		"a flag that does not exist":        {"--fast", "fast"},
		"something that is no flag":         {"storm", `found ["storm"]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(strings.Fields(tt.args), io.Discard)
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want an error of usage that says %q", err, tt.says)
			}
			if code := exitCode(t.Context(), err); code != exitUsage {
				t.Errorf("got exit code %d, want %d", code, exitUsage)
			}
		})
	}
}

func TestHelpHasExamplesAndExitCodes(t *testing.T) {
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v, want flag.ErrHelp", err)
	}
	for _, want := range append(trial.Topics(), "Examples:", "Exit codes:", "-dormant-time") {
		if !strings.Contains(help.String(), want) {
			t.Errorf("expected %q in the help, found none", want)
		}
	}
}

func TestLimitsHaveFigures(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range targets(full().sizes) {
		if len(r.Limits) > len(r.Ours) {
			t.Errorf("row %q: expected no more limits than figures, found %d for %d", r.What, len(r.Limits), len(r.Ours))
		}
		if seen[r.What] {
			t.Errorf("row %q is there twice", r.What)
		}
		seen[r.What] = true
	}
	if missed := figures.Missed(targets(full().sizes), map[string]float64{"storm_500_synced_seconds": 11}); len(missed) != 1 {
		t.Errorf("expected the slow storm to be missed, found %q", missed)
	}
}
