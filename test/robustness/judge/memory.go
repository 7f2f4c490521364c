package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// longLife is how long a process of a manager must live, so that what it takes says something.
const longLife = 30 * time.Minute

// Life is what a process of a manager took in the second and in the last quarter of its life. Each is the median.
type Life struct {
	// Manager is the process, such as a.2.
	Manager string
	Length  time.Duration
	// Second and Last are of the second and of the last quarter.
	Second, Last record.Sample
}

// flat is about what managers take while they live.
var flat = rule{
	name: "flat",
	promise: "heap and goroutines of a manager that lives for half an hour do not grow from the second quarter of its " +
		"life to the last by more than a fifth, and 5 MiB or 50 goroutines",
}

// Lives returns what the processes took that lived long enough, in the order of their names.
func Lives(samples []record.Sample) []Life {
	of := map[string][]record.Sample{}
	for _, s := range samples {
		of[s.Manager] = append(of[s.Manager], s)
	}
	var all []Life
	for manager, taken := range of {
		length := taken[len(taken)-1].Time.Sub(taken[0].Time)
		if length < longLife {
			continue
		}
		n := len(taken)
		all = append(all, Life{manager, length, median(taken[n/4 : n/2]), median(taken[n*3/4:])})
	}
	slices.SortFunc(all, func(a, b Life) int { return strings.Compare(a.Manager, b.Manager) })
	return all
}

// median returns the median of each figure.
func median(samples []record.Sample) record.Sample {
	of := func(figure func(record.Sample) float64) float64 {
		var all []float64
		for _, s := range samples {
			all = append(all, figure(s))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return record.Sample{
		Memory:     of(func(s record.Sample) float64 { return s.Memory }),
		Heap:       of(func(s record.Sample) float64 { return s.Heap }),
		Goroutines: of(func(s record.Sample) float64 { return s.Goroutines }),
	}
}

// grown says what of a process grew.
func (l *Life) grown() string {
	switch a, b := l.Second, l.Last; {
	case b.Heap > a.Heap*1.2+5<<20:
		return fmt.Sprintf("the heap grew from %.0f to %.0f MiB", a.Heap/(1<<20), b.Heap/(1<<20))
	case b.Goroutines > a.Goroutines*1.2+50:
		return fmt.Sprintf("the goroutines grew from %.0f to %.0f", a.Goroutines, b.Goroutines)
	}
	return ""
}

// lives judges what the managers took.
func (v *Verdict) lives(samples []record.Sample) {
	v.Lives = Lives(samples)
	for i := range v.Lives {
		v.Checked[flat.name]++
		if text := v.Lives[i].grown(); text != "" {
			v.Findings = append(v.Findings, Finding{Rule: flat.name, Promise: flat.promise, Text: text, Object: "manager " + v.Lives[i].Manager})
		}
	}
}
