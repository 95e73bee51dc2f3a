// SPDX-License-Identifier: Apache-2.0

// Package trial has the measurements of the bench, each with its plain counterpart. One trial is one process: what it
// holds and asks is its own.
package trial

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/terminal"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// Sizes says how much each trial does; Plain is the same for plain controller-runtime.
type Sizes struct {
	Installs, PlainInstalls       int
	Cycles, PlainCycles           int
	DormantKinds                  int
	DormantTime, PlainDormantTime time.Duration
	Storm, PlainStorm             int
}

// Job is one round of one trial, as it is handed to its process.
type Job struct {
	Trial      string
	Sizes      Sizes
	Kubeconfig []byte
	Began      time.Time // of the whole bench
}

// Limit bounds one round of a trial.
func (j Job) Limit() time.Duration { return time.Hour + j.Sizes.DormantTime + j.Sizes.PlainDormantTime }

// plain ends the names of trials of plain controller-runtime.
const plain = "-plain"

// Trial is one measurement.
type Trial struct {
	Name string
	// Long is one that measures a span of time: more rounds would tell nothing new.
	Long bool
	run  func(context.Context, *bed) (figures.Round, error)
}

// Topic is the name without what tells plain controller-runtime from ours.
func (t Trial) Topic() string { return strings.TrimSuffix(t.Name, plain) }

// All lists the trials in their order.
func All() []Trial {
	return []Trial{
		{Name: "installs", run: installs},
		{Name: "installs" + plain, run: plainInstalls},
		{Name: "restarts", run: restarts},
		{Name: "restarts" + plain, run: plainRestarts},
		{Name: "shared", run: shared},
		{Name: "shared" + plain, run: plainShared},
		{Name: "storm", run: storm},
		{Name: "storm" + plain, run: plainStorm},
		{Name: "dormant", run: dormant, Long: true},
		{Name: "dormant" + plain, run: plainDormant, Long: true},
	}
}

// Topics lists what can be measured.
func Topics() []string {
	var names []string
	for _, t := range All() {
		names = append(names, t.Topic())
	}
	return slices.Compact(names)
}

// Run does the job in this process.
func Run(ctx context.Context, j Job) (figures.Round, error) {
	i := slices.IndexFunc(All(), func(t Trial) bool { return t.Name == j.Trial })
	if i < 0 {
		return nil, fmt.Errorf("expected a trial of this program, found %q: build both ends anew", j.Trial)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(j.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the job: %w", err)
	}
	cluster, err := world.NewCluster(cfg)
	if err != nil {
		return nil, err
	}
	counter := &world.Counter{}
	b := &bed{
		Sizes: j.Sizes, cfg: counter.Config(cfg), counter: counter, log: counter.Logger(), cluster: cluster,
		progress: terminal.New(os.Stderr, j.Trial, j.Began),
	}
	ctrllog.SetLogger(b.log)
	ctx, cancel := context.WithTimeout(ctx, j.Limit())
	defer cancel()
	round, err := All()[i].run(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("trial %s: %w", j.Trial, err)
	}
	return round, nil
}
