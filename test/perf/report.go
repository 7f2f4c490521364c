package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the stored result of a run.
type report struct {
	Scenario string   `json:"scenario"`
	About    string   `json:"about"`
	Manager  string   `json:"manager"`
	Date     string   `json:"date"`
	Seconds  float64  `json:"seconds"`
	Machine  machine  `json:"machine"`
	Phases   []*phase `json:"phases,omitempty"`
	Figures  []figure `json:"figures,omitempty"`
	Targets  []target `json:"targets,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// machine describes the machine of the measurement, without its name.
type machine struct {
	Cores      int     `json:"cores"`
	CPU        string  `json:"cpu"`
	MemoryGiB  float64 `json:"memoryGiB"`
	System     string  `json:"system"`
	Go         string  `json:"go"`
	Kubernetes string  `json:"kubernetes,omitempty"`
	// Load is the load average of the last minute before the run: above 1 other programs used the CPU too.
	Load string `json:"loadBefore"`
}

// phase is one measured step.
type phase struct {
	Name string `json:"name"`
	// Bare: done by the bare client, as the ceiling.
	Bare          bool    `json:"bare,omitempty"`
	Pods          int     `json:"pods"`
	Seconds       float64 `json:"seconds"`
	PodsPerSecond float64 `json:"podsPerSecond"`
	// PodWrites are the successful writes of pods, per pod; Writes all successful ones by verb and resource,
	// Refused the others.
	PodWrites float64        `json:"podWritesPerPod"`
	Writes    map[string]int `json:"writes,omitempty"`
	Refused   map[string]int `json:"refused,omitempty"`
	// Requests of any sort, reads and events included, by method, as the manager counts them.
	Requests   map[string]float64 `json:"requests,omitempty"`
	CPU        float64            `json:"cpuSeconds,omitempty"`
	CPUPerPod  float64            `json:"cpuMillisPerPod,omitempty"`
	Memory     *memory            `json:"memory,omitempty"`
	Reconciles float64            `json:"reconciles,omitempty"`
	Budget     *budgetUse         `json:"budget,omitempty"`
	// Lost is how often the cluster took a pod out of service because its simulated node was late.
	Lost int `json:"lost,omitempty"`
	// Others is the part of the machine that others used meanwhile, from 0 to 1.
	Others float64 `json:"others"`
	// Programs is the CPU time of what was measured, in milliseconds per pod, by program: what a step costs
	// the cluster.
	Programs map[string]float64 `json:"programs,omitempty"`
}

// budgetUse tells how the budget was used until every pod had begun to move.
type budgetUse struct {
	Budget int `json:"budget"`
	Most   int `json:"most"`
	// Mean part of the budget in use, and the part of the time in which at least 90 % of it was.
	Mean float64 `json:"mean"`
	Full float64 `json:"full"`
	// Down is how long a pod was out of service, on average, in seconds.
	Down float64 `json:"downSecondsPerPod"`
}

// figure is one number that does not belong to a phase.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// target is one target and whether it was reached.
type target struct {
	Name     string `json:"name"`
	Promised string `json:"promised"`
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
	far      bool
}

func newReport(s scenario, name string) *report {
	if name == "" {
		name = "unnamed"
	}
	return &report{Scenario: s.name, About: s.about, Manager: name, Date: time.Now().UTC().Format("2006-01-02"), Machine: describeMachine()}
}

func describeMachine() machine {
	m := machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return string(b)
	}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		var kib float64
		if _, err := fmt.Sscanf(line, "MemTotal: %f kB", &kib); err == nil {
			m.MemoryGiB = kib / (1 << 20)
		}
	}
	if f := strings.Fields(read("/proc/loadavg")); len(f) > 0 {
		m.Load = f[0]
	}
	return m
}

func (r *report) figure(name string, value float64, unit string) {
	r.Figures = append(r.Figures, figure{name, value, unit})
	fmt.Printf("  %s: %s %s\n", name, number(value), unit)
}

func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// byFar is how many times worse than promised a figure may be before the run fails: other machines, and other
// guests of this one, explain less.
const byFar = 1.5

// atMost and atLeast compare a figure with a promise.
func (r *report) atMost(name string, measured, promised float64, unit string) {
	r.Targets = append(r.Targets, target{name, "at most " + number(promised) + " " + unit, number(measured) + " " + unit,
		measured <= promised, measured > byFar*promised})
}

func (r *report) atLeast(name string, measured, promised float64, unit string) {
	r.Targets = append(r.Targets, target{name, "at least " + number(promised) + " " + unit, number(measured) + " " + unit,
		measured >= promised, measured < promised/byFar})
}

// missed is an error if a promise is missed by far.
func (r *report) missed() error {
	var names []string
	for _, t := range r.Targets {
		if t.far {
			names = append(names, fmt.Sprintf("%s: %s, promised %s", t.Name, t.Measured, t.Promised))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("missed by far: %s", strings.Join(names, "; "))
}

// find returns a phase; nil if there is none of that name.
func (r *report) find(name string, bare bool) *phase {
	for _, p := range r.Phases {
		if p.Name == name && p.Bare == bare {
			return p
		}
	}
	return nil
}

func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%d", int64(v))
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, r.Scenario)
	if err := os.WriteFile(path+".json", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path+".md", []byte(r.markdown()), 0o644)
}

// readReport returns an earlier report of another scenario, nil if there is none.
func readReport(dir, scenario string) *report {
	b, err := os.ReadFile(filepath.Join(dir, scenario+".json"))
	if err != nil {
		return nil
	}
	r := &report{}
	if json.Unmarshal(b, r) != nil {
		return nil
	}
	return r
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", r.Scenario, r.About)
	m := r.Machine
	fmt.Fprintf(&b, "%s, %s, in %.0f s. %d cores %s, %.0f GiB, %s, %s", r.Manager, r.Date, r.Seconds, m.Cores, m.CPU, m.MemoryGiB, m.System,
		m.Go)
	if m.Kubernetes != "" {
		fmt.Fprintf(&b, ", Kubernetes %s", m.Kubernetes)
	}
	fmt.Fprintf(&b, "; load before the run %s.\n", m.Load)
	if len(r.Targets) > 0 {
		b.WriteString("\n| target | promised | measured | met |\n|---|---|---|---|\n")
		for _, t := range r.Targets {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.Name, t.Promised, t.Measured, map[bool]string{true: "yes", false: "**no**"}[t.Met])
		}
	}
	if len(r.Phases) > 0 {
		b.WriteString(
			"\n| step | by | pods | s | pods/s | pod writes per pod | CPU s | CPU ms per pod | RSS MiB | peak MiB | reconciles " +
				"|\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
		for _, p := range r.Phases {
			fmt.Fprintf(&b, "| %s | %s | %d | %.1f | %.1f | %.2f |", p.Name, map[bool]string{true: "bare client", false: "manager"}[p.Bare],
				p.Pods, p.Seconds, p.PodsPerSecond, p.PodWrites)
			if p.Memory != nil {
				fmt.Fprintf(&b, " %.2f | %.2f | %.0f | %.0f | %.0f |\n", p.CPU, p.CPUPerPod, p.Memory.RSS, p.Memory.Peak, p.Reconciles)
			} else {
				b.WriteString(" | | | | |\n")
			}
		}
		b.WriteString("\n| step | by | writes | refused | all requests of the manager | CPU ms per pod | budget |\n|---|---|---|---|---|---|---|\n")
		for _, p := range r.Phases {
			budget := ""
			if u := p.Budget; u != nil {
				budget = fmt.Sprintf(
					"most %d of %d; in use %.0f %% on average, nine tenths of it %.0f %% of the time; each pod out of service "+
						"for %.1f s on average",
					u.Most, u.Budget, 100*u.Mean, 100*u.Full, u.Down)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", p.Name, map[bool]string{true: "bare client", false: "manager"}[p.Bare],
				counts(p.Writes), counts(p.Refused), counts(p.Requests), counts(p.Programs), budget)
		}
	}
	if len(r.Figures) > 0 {
		b.WriteString("\n| figure | value |\n|---|--:|\n")
		for _, f := range r.Figures {
			fmt.Fprintf(&b, "| %s | %s %s |\n", f.Name, number(f.Value), f.Unit)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n- %s", note)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

func counts[N int | float64](all map[string]N) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, fmt.Sprintf("%s %v", key, all[key]))
	}
	return strings.Join(parts, ", ")
}
