// SPDX-License-Identifier: Apache-2.0

package savings

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	modelDays    = 30
	modelTick    = 30 * time.Second
	modelObjects = 12
	tolerance    = 0.01
)

// world is a simulation of objects, of one manager at a time, and of a Prometheus server that scrapes it.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	true time.Time
	// offset is the error of the wall clock of the manager's machine. upSince is when the process began; zero while
	// no manager runs, which lasts until downUntil.
	offset             time.Duration
	upSince, downUntil time.Time
	// isWrong is true while the clock is wrong by a day. No process starts then, because it would count the error.
	isWrong bool
	meter   *Meter
	objects []*object
	// gone is the sum of the last scraped values of deleted objects, and goneExact is the exact sum of their savings.
	gone, goneExact                 Totals
	restarts, steps, deleted, stops int
}

// object is one object at the API server, with its real state.
type object struct {
	uid    types.UID
	stored *torporv1alpha1.Savings
	rate   Rate
	// isWanted is true if a stop is requested. isOff is true if the last write stopped the object.
	isWanted, isOff bool
	nextChange      time.Time
	exact           Totals
	// shown is the last scraped value, and shownBy is the process that exported it. kept is the largest value that
	// Prometheus has stored.
	shown, kept Totals
	shownBy     *Meter
}

func (w *world) wall() time.Time { return w.true.Add(w.offset) }

func (w *world) newObject(n int) *object {
	o := &object{
		uid:  types.UID(fmt.Sprint(n)),
		rate: Rate{Machines: w.rng.Int64N(8), CPUMillis: 1 + w.rng.Int64N(8000), MemoryKiB: 1 + w.rng.Int64N(64<<20)},
	}
	o.nextChange = w.true.Add(time.Duration(w.rng.Int64N(int64(12 * time.Hour))))
	return o
}

// startManager starts a process, on the same machine or on another machine with another clock error.
func (w *world) startManager() {
	w.restarts++
	if w.rng.IntN(3) == 0 {
		w.offset = time.Duration(w.rng.Int64N(int64(6*time.Second))) - 3*time.Second
	}
	w.upSince = w.true
	w.meter = NewMeter(func() Instant { return Instant{Wall: w.wall(), Uptime: w.true.Sub(w.upSince)} })
}

// reconcile runs a pass. The manager is killed before or after one write in ten, because a repeated pass must not
// count twice.
func (w *world) reconcile(o *object) {
	now, rate := w.meter.Observe(o.uid, o.stored), Rate{}
	if o.isWanted {
		rate = o.rate
	}
	next := Next(o.stored, rate, now)
	if next == o.stored {
		return
	}
	isKilled := w.rng.IntN(10) == 0 && !w.isWrong
	if !isKilled || w.rng.IntN(2) == 0 {
		o.stored, o.isOff = next, o.isWanted
		w.stops++
	}
	if isKilled {
		w.kill(time.Duration(w.rng.Int64N(int64(time.Minute))))
	}
}

func (w *world) kill(outage time.Duration) { w.meter, w.downUntil = nil, w.true.Add(outage) }

func (w *world) scrape() {
	for _, o := range w.objects {
		if o.stored == nil {
			continue
		}
		value := w.meter.Read(o.uid, o.stored)
		if o.shownBy == w.meter && (value.MachineSeconds < o.shown.MachineSeconds || value.CPUSeconds < o.shown.CPUSeconds || value.MemoryByteSeconds < o.shown.MemoryByteSeconds) {
			w.t.Fatalf("at %s: object %s fell within one process from %v to %v", w.true, o.uid, o.shown, value)
		}
		o.shown, o.shownBy, o.kept = value, w.meter, o.kept.max(value)
	}
	w.meter.EndScrape()
}

// disturb steps the clock, ends the manager, or deletes an object.
func (w *world) disturb() {
	perTick := func(perDay float64) bool { return w.rng.Float64() < perDay*modelTick.Hours()/24 }
	if perTick(1) {
		w.steps++
		w.offset = time.Duration(w.rng.Int64N(int64(10*time.Minute))) - 5*time.Minute
	}
	if w.meter != nil && perTick(0.2) {
		w.steps++
		w.stepByADay()
	}
	if w.meter != nil && perTick(1) {
		w.kill(time.Duration(w.rng.Int64N(int64(2 * time.Minute))))
	}
	if w.meter != nil && perTick(0.2) {
		w.kill(time.Duration(w.rng.Int64N(int64(6 * time.Hour))))
	}
	if perTick(0.3) {
		i := w.rng.IntN(len(w.objects))
		w.deleted++
		w.gone, w.goneExact = w.gone.Plus(w.objects[i].kept), w.goneExact.Plus(w.objects[i].exact)
		w.objects[i] = w.newObject(modelObjects + w.deleted)
	}
}

// stepByADay makes the clock of a running process wrong by a day for an hour.
func (w *world) stepByADay() {
	before := w.offset
	w.offset, w.isWrong = before+24*time.Hour, true
	if w.rng.IntN(2) == 0 {
		w.offset = before - 24*time.Hour
	}
	for range int(time.Hour / modelTick) {
		w.tick()
	}
	w.offset, w.isWrong = before, false
}

func (w *world) tick() {
	w.true = w.true.Add(modelTick)
	for _, o := range w.objects {
		if o.isOff {
			s := modelTick.Seconds()
			o.exact = o.exact.Plus(Totals{
				MachineSeconds: float64(o.rate.Machines) * s, CPUSeconds: float64(o.rate.CPUMillis) / millisPerCore * s,
				MemoryByteSeconds: float64(o.rate.MemoryKiB) * bytesPerKiB * s,
			})
		}
		if !w.true.Before(o.nextChange) {
			o.isWanted = !o.isWanted
			o.nextChange = w.true.Add(time.Hour + time.Duration(w.rng.Int64N(int64(14*time.Hour))))
		}
	}
	if w.meter == nil && !w.true.Before(w.downUntil) {
		w.startManager()
	}
	for _, o := range w.objects {
		if w.meter != nil {
			w.reconcile(o)
		}
	}
	if w.meter != nil {
		w.scrape()
	}
}

// TestCountersEqualTheIntegral simulates 30 days with restarts, kills at writes, outages, failovers, clock steps and
// deletions. At the end, the counters equal the exact integral within 1 %, and no counter decreased within one
// process.
func TestCountersEqualTheIntegral(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), true: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
			for n := range modelObjects {
				w.objects = append(w.objects, w.newObject(n))
			}
			w.startManager()
			for end := w.true.AddDate(0, 0, modelDays); w.true.Before(end); {
				w.disturb()
				w.tick()
			}
			for w.meter == nil {
				w.tick()
			}
			counted, exact := w.gone, w.goneExact
			for _, o := range w.objects {
				counted, exact = counted.Plus(o.kept), exact.Plus(o.exact)
			}
			if w.restarts < modelDays/2 || w.steps < modelDays/2 || w.deleted < 1 || w.stops < modelDays*modelObjects/2 {
				t.Errorf("expected a month with disturbances, found %d restarts, %d steps, %d deletions, %d changes", w.restarts, w.steps, w.deleted, w.stops)
			}
			for name, row := range map[string][2]float64{
				"machine-seconds":     {counted.MachineSeconds, exact.MachineSeconds},
				"CPU-seconds":         {counted.CPUSeconds, exact.CPUSeconds},
				"memory byte-seconds": {counted.MemoryByteSeconds, exact.MemoryByteSeconds},
			} {
				if off := math.Abs(row[0]-row[1]) / row[1]; off > tolerance {
					t.Errorf("%s: expected %.0f within 1 %%, found %.0f, which is off by %.2f %%", name, row[1], row[0], 100*off)
				}
			}
		})
	}
}
