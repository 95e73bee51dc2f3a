// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

// fleetPhase is a step of a transition that each cluster passes through.
type fleetPhase string

const (
	phaseAsked    fleetPhase = "requested in the hub"
	phaseBegun    fleetPhase = "reported as begun"
	phaseOrdered  fleetPhase = "requested from the cloud"
	phaseChanged  fleetPhase = "all its machines changed"
	phaseListed   fleetPhase = "listed as such by the cloud"
	phaseReported fleetPhase = "reported as done"
)

func fleetPhaseOrder() []fleetPhase {
	return []fleetPhase{phaseAsked, phaseBegun, phaseOrdered, phaseChanged, phaseListed, phaseReported}
}

// fleetPhases records when the clusters of a fleet passed each phase of a transition. For a nil pointer, noteState
// records nothing.
type fleetPhases struct {
	state string
	began time.Time

	mu     sync.Mutex
	passed map[fleetPhase]map[string]time.Time
}

func newFleetPhases(state string) *fleetPhases {
	p := &fleetPhases{state: state, began: time.Now(), passed: map[fleetPhase]map[string]time.Time{}}
	for _, phase := range fleetPhaseOrder() {
		p.passed[phase] = map[string]time.Time{}
	}
	return p
}

// noteFirst records when a cluster passed a phase, unless that is already recorded.
func (p *fleetPhases) noteFirst(phase fleetPhase, cluster string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isKnown := p.passed[phase][cluster]; !isKnown {
		p.passed[phase][cluster] = at
	}
}

// noteState records the states that a watch shows: the first report that is neither the old state nor the final one
// is the beginning of the transition.
func (p *fleetPhases) noteState(cluster, state string) {
	if p == nil {
		return
	}
	phase := phaseBegun
	switch state {
	case p.state:
		phase = phaseReported
	case "Running", "Hibernating", "":
		return
	}
	p.noteFirst(phase, cluster, time.Now())
}

func (p *fleetPhases) took() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last time.Time
	for _, at := range p.passed[phaseReported] {
		last = later(last, at)
	}
	return last.Sub(p.began).Seconds()
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// noteMachines records the states of machines in the cloud. A cluster has passed a phase when its last machine has
// passed it.
func (p *fleetPhases) noteMachines(machines []cloudInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for phase, at := range map[fleetPhase]func(cloudInstance) time.Time{
		phaseOrdered: func(i cloudInstance) time.Time { return i.AskedAt },
		phaseChanged: func(i cloudInstance) time.Time { return i.ChangedAt },
		phaseListed:  func(i cloudInstance) time.Time { return i.ListedAt },
	} {
		for _, i := range machines {
			if moment := at(i); moment.After(p.began) { // A machine that a group has terminated or launched may lack this time.
				p.passed[phase][i.Name] = later(p.passed[phase][i.Name], moment)
			}
		}
	}
}

// secondsOf returns the sorted times at which clusters passed a phase, in seconds since the beginning or since another
// phase.
func (p *fleetPhases) secondsOf(phase, after fleetPhase) []float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []float64
	for cluster, at := range p.passed[phase] {
		since := p.began
		if after != "" {
			var isKnown bool
			if since, isKnown = p.passed[after][cluster]; !isKnown {
				continue
			}
		}
		all = append(all, at.Sub(since).Seconds())
	}
	slices.Sort(all)
	return all
}

// printPhases prints when the first, the middle and the last cluster passed each phase, and which programs used CPU
// time in the meantime.
func (f *fleet) printPhases(name string, p *fleetPhases, used processorTime) {
	for _, cloud := range f.clouds {
		f.cloudURL = cloud
		p.noteMachines(f.listInstances())
	}
	rows := fmt.Sprintf("%-34s %7s %7s %7s\n", "seconds until", "first", "half", "last")
	row := func(title string, all []float64) {
		if len(all) > 0 {
			rows += fmt.Sprintf("%-34s %7.1f %7.1f %7.1f\n", title, all[0], all[len(all)/2], all[len(all)-1])
		}
	}
	for _, phase := range fleetPhaseOrder() {
		all := p.secondsOf(phase, "")
		row(string(phase), all)
		if len(all) > 0 {
			f.figures.AddValue(f.size.figureName(fmt.Sprintf("%s_%s", strings.ToLower(name), strings.ReplaceAll(string(phase), " ", "_"))), all[len(all)-1])
		}
	}
	row("… cloud call after the request", p.secondsOf(phaseOrdered, phaseAsked))
	row("… list after the change", p.secondsOf(phaseListed, phaseChanged))
	row("… report after the list", p.secondsOf(phaseReported, phaseListed))
	clusters := float64(f.size.Clusters)
	var usage strings.Builder
	for _, program := range slices.Sorted(maps.Keys(used.byProgram)) {
		fmt.Fprintf(&usage, " %s %.1f", program, used.byProgram[program]/clusters*1000)
		f.figures.AddValue(f.size.figureName(fmt.Sprintf("%s_cpu_ms_%s", strings.ToLower(name), program)), used.byProgram[program]/clusters*1000)
	}
	rows += fmt.Sprintf("milliseconds of CPU per cluster:%s; others %.1f; %.0f %% of the CPU idle\n", usage.String(), used.others()/clusters*1000, 100*used.idle/(used.idle+used.busy))
	f.QuoteOutput(rows)
}

// processorTime is CPU time in seconds: of each program, and of the whole machine.
type processorTime struct {
	byProgram  map[string]float64
	busy, idle float64
}

func (t processorTime) since(b processorTime) processorTime {
	spent := processorTime{map[string]float64{}, t.busy - b.busy, t.idle - b.idle}
	for name, seconds := range t.byProgram {
		spent.byProgram[name] = seconds - b.byProgram[name]
	}
	return spent
}

// others returns the CPU time of programs that the benchmark has not started.
func (t processorTime) others() float64 {
	left := t.busy
	for _, seconds := range t.byProgram {
		left -= seconds
	}
	return max(left, 0)
}

func (f *fleet) readProcessors() processorTime {
	t := processorTime{byProgram: map[string]float64{}}
	pids := map[string]int{"bench": os.Getpid()}
	for name, program := range f.programs {
		pids[name] = program.Identity().PID
	}
	for name, pid := range pids {
		p, err := procfs.NewProc(pid)
		runner.ExpectNoError(err)
		stat, err := p.Stat()
		runner.ExpectNoError(err)
		kind, _, _ := strings.Cut(name, "-") // All clouds share one row.
		t.byProgram[kind] += stat.CPUTime()
	}
	machine, err := procfs.NewDefaultFS()
	runner.ExpectNoError(err)
	stat, err := machine.Stat()
	runner.ExpectNoError(err)
	total := stat.CPUTotal
	t.idle = total.Idle + total.Iowait
	t.busy = total.User + total.Nice + total.System + total.IRQ + total.SoftIRQ + total.Steal
	return t
}

// printRequests prints the requests of all clients to the hub, per cluster, except rare ones.
func (f *fleet) printRequests(spent fleetCost) {
	const rare = 0.1
	var asked []string
	for what, count := range spent.requests {
		if each := count / float64(f.size.Clusters); each >= rare {
			asked = append(asked, fmt.Sprintf("%s %.2f", what, each))
		}
	}
	slices.Sort(asked)
	f.QuoteOutput("requests to the hub per cluster: " + strings.Join(asked, ", "))
}
