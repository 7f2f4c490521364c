//go:build integration

package tenants

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"
)

// attack is something that the hostile user does.
type attack struct {
	// name is in the name of its namespace, too.
	name string
	// does is a sentence for the report.
	does string
	// run makes the attack and returns, or calls again, which goes on until the context has ended.
	run func(ctx context.Context, m *tenant) error
	// least is how many requests must be accepted, at the least: otherwise the attack did not happen.
	least int
	// check, if not nil, looks at what became of it.
	check func(t *testing.T, m *tenant)
}

// result is what was measured during an attack.
type result struct {
	attack  attack
	answers string
	// used are the CPU seconds of the manager in took, peak its memory in bytes and goroutines the most of
	// them.
	took             time.Duration
	used, goroutines float64
	peak             uint64
	log              int64
	repeats          float64
	rounds           []round
}

// rounds is how many rollouts of the other tenant are measured after an attack was made, at the least. During
// one that goes on there is one more.
const rounds = 2

// One tenant does what it may, or tries what it may not. The manager goes on without a restart or a panic and
// within its memory limit, nothing of another tenant is written or deleted, and its rollouts end
// (OPS-066 (part)).
func TestTenants(t *testing.T) {
	w := start(t)
	results := []result{w.play(attack{name: "rest", does: "nothing: what the others are compared with",
		run: func(ctx context.Context, m *tenant) error { return m.lasts(ctx, 3*rounds) }})}
	for _, a := range slices.Concat(floodAttacks, valueAttacks, numberAttacks, objectAttacks) {
		failed := !t.Run(a.name, func(t *testing.T) {
			inner := *w
			inner.t = t
			results = append(results, inner.play(a))
		})
		if err := w.manager.died(); err != nil {
			t.Fatalf("no further attacks are played: %v", err)
		}
		if _, err := w.victim.since(time.Now()); failed && err != nil {
			t.Fatalf("no further attacks are played: %v", err)
		}
		if path := os.Getenv("TENANTS_REPORT"); path != "" { // what was measured is there, whatever comes
			if err := report(path, w, results); err != nil {
				t.Error(err)
			}
		}
	}
}

// play plays an attack and measures it.
func (w *world) play(a attack) result {
	w.t.Helper()
	ctx := w.t.Context()
	m := w.newTenant("hostile-" + a.name)
	w.manager.calms(w.t)
	w.manager.resetPeak()
	before, err := w.manager.usage(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	begin := time.Now()
	most, stop := w.sample(ctx)
	attacking, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() { ran <- a.run(attacking, m) }()
	measured, loops := rounds, false
	select {
	case err = <-ran:
	case <-m.looping:
		measured, loops = measured+1, true
	}
	if err := w.victim.next(ctx, measured); err != nil {
		w.t.Errorf("the other tenant waits: %v", err)
	}
	end()
	if loops {
		err = <-ran
	}
	if err != nil {
		w.t.Errorf("the attack: %v", err)
	}
	r := result{attack: a, took: time.Since(begin)}
	stop()
	after, err := w.manager.usage(ctx)
	if err != nil {
		w.t.Errorf("the manager is gone: %v", err)
		return r
	}
	r.used, r.peak, r.goroutines, r.log, r.repeats = after.cpu-before.cpu, max(after.peak, most.peak), max(most.goroutines, after.goroutines),
		after.log-before.log, after.repeats-before.repeats
	accepted, answers := m.accepted()
	r.answers = answers
	if accepted < a.least {
		w.t.Errorf("the attack did not happen: %s, want at least %d", answers, a.least)
	}
	w.harmless(a, m, begin, before, after, r.peak)
	if r.rounds, err = w.victim.since(begin); err != nil {
		w.t.Errorf("the other tenant waits: %v", err)
	}
	cleaning := time.Now()
	if err := m.cleans(ctx); err != nil {
		w.t.Errorf("cleaning up after the attack: %v", err)
	}
	w.t.Logf("the attack took %s, cleaning up %s: %s", r.took.Round(time.Millisecond), time.Since(cleaning).Round(time.Millisecond), answers)
	w.t.Log(r.line())
	for _, one := range r.rounds {
		for _, text := range one.refused {
			w.t.Logf("refused to the other tenant: %s", text)
		}
	}
	return r
}

// harmless fails the test if an attack had an effect that none may have.
func (w *world) harmless(a attack, m *tenant, begin time.Time, before, after usage, peak uint64) {
	w.t.Helper()
	if a.check != nil {
		a.check(w.t, m)
	}
	if err := w.manager.died(); err != nil {
		w.t.Error(err)
	}
	if line := w.manager.paniced(before.log); line != "" || after.panics > before.panics {
		w.t.Errorf("the manager panicked: %s", line)
	}
	if int64(peak) >= w.manager.limit {
		w.t.Errorf("the manager had %d MiB, its limit is %d", peak>>20, w.manager.limit>>20)
	}
	if harm, err := w.audit.harm(begin); err != nil || len(harm) > 0 {
		w.t.Errorf("written in the namespace of the other tenant: %v, %v", harm, err)
	}
	if err := w.victim.untouched(w.t.Context()); err != nil {
		w.t.Errorf("the other tenant: %v", err)
	}
}

// sample reads the manager's usage again and again until the returned function is called.
func (w *world) sample(ctx context.Context) (most *usage, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	most, done := &usage{}, make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			if now, err := w.manager.usage(ctx); err == nil {
				most.peak, most.goroutines = max(most.peak, now.peak), max(most.goroutines, now.goroutines)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return most, func() { cancel(); <-done }
}
