// SPDX-License-Identifier: Apache-2.0

// Command bench measures the library conditional on a real API server and, for comparison, plain controller-runtime.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// trialArgument makes this program a child process that runs the trial described on its standard input.
const trialArgument = "one-trial"

// trialSizes holds the counts and durations of all trials. Fields with Plain are for plain controller-runtime.
type trialSizes struct {
	Rounds                        int
	Installs, PlainInstalls       int
	Cycles, PlainCycles           int
	DormantKinds                  int
	DormantTime, PlainDormantTime time.Duration
	Storm, PlainStorm             int
	Providers                     int
}

func fullSizes() trialSizes {
	return trialSizes{
		Rounds: 3, Installs: 300, PlainInstalls: 30, Cycles: 1000, PlainCycles: 100, Storm: 500, PlainStorm: 100, Providers: 900,
		DormantKinds: 100, DormantTime: 10 * time.Minute, PlainDormantTime: time.Minute,
	}
}

func quickSizes() trialSizes {
	return trialSizes{
		Rounds: 1, Installs: 30, PlainInstalls: 5, Cycles: 100, PlainCycles: 20, Storm: 50, PlainStorm: 20, Providers: 90,
		DormantKinds: 100, DormantTime: time.Minute, PlainDormantTime: 30 * time.Second,
	}
}

// trialJob is the job of a child process.
type trialJob struct {
	Trial      string
	Sizes      trialSizes
	Kubeconfig []byte
}

func main() {
	quick := flag.Bool("quick", false, "small sizes and one round: a few minutes instead of half an hour")
	only := flag.String("only", "", "run only this measurement: installs, restarts, shared, storm, deletions, runtime, slow, providers or dormant")
	soak := flag.Duration("soak", 0, "how long to change CRDs at random and check for lost events, instead of measuring")
	seed := flag.Uint64("seed", 1, "seed of the soak's random changes")
	file := flag.String("out", "conditional.json", "file for the medians of the rounds, as a flat JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sizes := fullSizes()
	if *quick {
		sizes = quickSizes()
	}
	var err error
	switch {
	case flag.Arg(0) == trialArgument:
		err = runChild(ctx)
	case *soak > 0:
		err = runSoak(ctx, *soak, *seed)
	default:
		err = runBench(ctx, sizes, *only, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// runBench runs the selected trials, prints the table and writes the figures.
func runBench(ctx context.Context, sizes trialSizes, only, file string) error {
	ctrllog.SetLogger(logr.Discard()) // envtest uses this logger, and complains if none exists. A trial has its own logger.
	start, measured := time.Now(), allFigures{}
	before := loadAverage()
	for n := range sizes.Rounds {
		for _, t := range allTrials() {
			// A trial that runs for a fixed time is not repeated, because a second round shows nothing new.
			if only != "" && only != strings.TrimSuffix(t.name, plainSuffix) || t.measuresTime && n > 0 {
				continue
			}
			fmt.Fprintf(os.Stderr, "[%4.0fs] round %d of %d: %s\n", time.Since(start).Seconds(), n+1, sizes.Rounds, t.name)
			r, err := runIsolated(ctx, trialJob{Trial: t.name, Sizes: sizes})
			if err != nil {
				return fmt.Errorf("trial %s: %w", t.name, err)
			}
			measured.add(r)
		}
	}
	if err := printTable(os.Stdout, tableRows(sizes), measured.flatten()); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "\n%d cores, load average %.2f before and %.2f after; medians of %d rounds; maxima are over all rounds; took %s\n",
		runtime.NumCPU(), before, loadAverage(), sizes.Rounds, time.Since(start).Round(time.Second))
	return measured.save(file)
}

// loadAverage returns the load average; 0 on a system without /proc.
func loadAverage() (load float64) {
	data, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, _ = fmt.Sscan(string(data), &load)
	}
	return load
}

// runIsolated runs a trial with its own API server and process, so its resources and requests are counted separately.
func runIsolated(ctx context.Context, job trialJob) (r roundFigures, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return nil, errors.New("expected the folder of etcd and kube-apiserver in KUBEBUILDER_ASSETS: use `make bench NAME=conditional`, or set it")
	}
	server, err := testenv.NewEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if _, err := server.Start(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	job.Kubeconfig = server.KubeConfig
	input, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encode the job: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	child := exec.CommandContext(ctx, self, trialArgument)
	child.Stdin, child.Stderr = bytes.NewReader(input), os.Stderr
	output, err := child.Output()
	if err != nil {
		return nil, fmt.Errorf("run the child process, whose error is above: %w", err)
	}
	return r, json.Unmarshal(output, &r)
}

// runChild runs the trial described on its standard input.
func runChild(ctx context.Context) error {
	var job trialJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		return fmt.Errorf("read the job (this argument is only for the program itself): %w", err)
	}
	r, err := runTrial(ctx, job)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
