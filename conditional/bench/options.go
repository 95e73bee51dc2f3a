// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const usage = `Measures the library conditional, and plain controller-runtime beside it, on a real kube-apiserver with its etcd, which it
starts from the folder in KUBEBUILDER_ASSETS and ends with itself. Each measurement has a server and a process of its own.

  installs   CRD established until the controller's sources have synced; CRD gone until the group is dormant
  restarts   start and stop on a kind that is served, with an informer of the group's own; leaks
  shared     the same on a kind that a neighbour watches; leaks, and the neighbour's lost events
  storm      many CRDs at once; memory and goroutines of running groups
  dormant    requests, CPU time, error logs, memory and goroutines of groups whose kind is absent

Progress goes to stderr, the table to stdout, the figures, which are medians of the rounds, to a file.

Examples:
  bench --quick                              a few minutes, small sizes
  bench --out .cache/bench/conditional.json  everything, about half an hour
  bench --only dormant --dormant-time 2m     one measurement
  bench --strict                             a missed target is an error

Exit codes: 0 measured, 1 failed, 2 used wrongly, 3 a target was missed and --strict was given, 130 interrupted.

Flags:
`

// trialSizes says how much each trial does; those with Plain are for plain controller-runtime.
type trialSizes struct {
	Installs, PlainInstalls       int
	Cycles, PlainCycles           int
	DormantKinds                  int
	DormantTime, PlainDormantTime time.Duration
	Storm, PlainStorm             int
}

// benchOptions is the command line.
type benchOptions struct {
	sizes  trialSizes
	rounds int
	only   []string
	out    string
	strict bool
}

func fullOptions() benchOptions {
	return benchOptions{rounds: 3, sizes: trialSizes{
		Installs: 300, PlainInstalls: 30, Cycles: 1000, PlainCycles: 100, Storm: 500, PlainStorm: 100,
		DormantKinds: 100, DormantTime: 10 * time.Minute, PlainDormantTime: time.Minute,
	}}
}

func quickOptions() benchOptions {
	return benchOptions{rounds: 1, sizes: trialSizes{
		Installs: 30, PlainInstalls: 5, Cycles: 100, PlainCycles: 20, Storm: 50, PlainStorm: 20,
		DormantKinds: 100, DormantTime: time.Minute, PlainDormantTime: 30 * time.Second,
	}}
}

// parseOptions reads the command line, and writes the usage to help if it asks for that. It reads twice with --quick,
// whose sizes are defaults that other flags override.
func parseOptions(args []string, help io.Writer) (benchOptions, error) {
	o := fullOptions()
	quick, err := o.parse(args, help)
	if err == nil && quick {
		o = quickOptions()
		_, err = o.parse(args, help)
	}
	if err == nil {
		err = o.validate()
	}
	if err != nil {
		return o, fmt.Errorf("%w (%w)", err, errUsage)
	}
	return o, nil
}

func (o *benchOptions) parse(args []string, help io.Writer) (quick bool, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // The caller prints the error in one line; the flag package would add all flags to it.
	f.BoolVar(&quick, "quick", false, "small sizes and one round, for trying")
	f.BoolVar(&o.strict, "strict", false, "exit with 3 when a target was missed")
	f.StringVar(&o.out, "out", "conditional.json", "file for the figures, a flat JSON object")
	f.IntVar(&o.rounds, "rounds", o.rounds, "how often everything but dormant is measured")
	only := f.String("only", "", "comma-separated measurements: "+strings.Join(allTopics(), ", "))
	s := &o.sizes
	f.IntVar(&s.Installs, "installs", s.Installs, "how often a CRD is installed")
	f.IntVar(&s.PlainInstalls, "plain-installs", s.PlainInstalls, "the same for plain controllers")
	f.IntVar(&s.Cycles, "cycles", s.Cycles, "how often a group starts and stops, for restarts and for shared")
	f.IntVar(&s.PlainCycles, "plain-cycles", s.PlainCycles, "the same for plain controllers")
	f.IntVar(&s.Storm, "storm", s.Storm, "how many CRDs are installed at once")
	f.IntVar(&s.PlainStorm, "plain-storm", s.PlainStorm, "the same for plain controllers")
	f.IntVar(&s.DormantKinds, "dormant-kinds", s.DormantKinds, "how many groups, or plain controllers, wait for absent kinds")
	f.DurationVar(&s.DormantTime, "dormant-time", s.DormantTime, "for how long")
	f.DurationVar(&s.PlainDormantTime, "plain-dormant-time", s.PlainDormantTime, "the same for plain controllers")
	err = f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(help)
		fmt.Fprint(help, usage)
		f.PrintDefaults()
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("expected flags only, found %q", f.Args())
	}
	if o.only = allTopics(); *only != "" {
		o.only = strings.Split(*only, ",")
	}
	return quick, err
}

func (o *benchOptions) validate() error {
	for _, topic := range o.only {
		if !slices.Contains(allTopics(), topic) {
			return fmt.Errorf("expected some of %s in --only, found %q", strings.Join(allTopics(), ", "), topic)
		}
	}
	s := o.sizes
	smallest := min(o.rounds, s.Installs, s.PlainInstalls, s.Cycles, s.PlainCycles, s.Storm, s.PlainStorm, s.DormantKinds)
	if smallest < 1 || min(s.DormantTime, s.PlainDormantTime) <= 0 {
		return errors.New("expected numbers and times greater than 0: correct the flag, or leave a measurement out with --only")
	}
	return nil
}
