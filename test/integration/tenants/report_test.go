//go:build integration

package tenants

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/discovery"
)

// page is the report; the text around the table says what bounds what.
var page = template.Must(template.New("tenants").Parse(`# What one tenant can do to others

One user has role ` + "`edit`" + ` in a namespace, with what Afloat adds to it, and does its worst. Another tenant updates a
CloneSet of {{.Pods}} pods in place again and again, one pod at a time. The manager is a process with the shipped roles, webhooks,
flags and ` + "`GOMEMLIMIT`" + `; the API server is real; pods become ready at once, as no kubelet runs.

This page is written by ` + "`make tenants`" + ` (` + "`test/integration/tenants`" + `), which fails if the manager restarts or panics, if it takes more
memory than its limit of {{.Limit}} MiB, if anything of the other tenant is written, deleted or evicted, or if one of its
rollouts does not end. The times are of one sitting, on one machine, where API server, etcd, manager and attacker share the cores: much of
a wait is the API server's, which a read of one ConfigMap shows.

{{.Machine}}

| attack | memory, peak | CPU | goroutines | log | other tenant: a read | pod | large object | edit | a watch | first write | rollout | refused |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{{range .Lines}}{{.}}
{{end}}
Memory is in MiB, CPU in seconds of the manager per second of the attack, and the log in KiB per second. Of the other tenant there are the median and the longest time, in ms, of what it
asks for: a read of a ConfigMap, the creation of a pod that goes to the webhook, and of a CloneSet with 1,000 variables (both as dry runs); then, from the moment in
which it edits its set, until that is answered, until a watch of its own shows it, until the API server gets the manager's first write for it, and until all pods are
updated and ready. No manager can write before its watch shows the edit, and that is the API server's time. Refused are answers that it should not get; it repeats its request.

## The attacks

{{range .Attacks}}- **{{.Name}}**: {{.Does}}. {{.Answers}}.
{{end}}
## What is bounded by what

| | by |
|---|---|
| what a user may write at all | role ` + "`edit`" + `: no cluster-wide kinds, no status, no ControllerRevisions ([rights](../operate/rights.md)) |
| owner references and selectors | controllers read objects of their own namespace alone, and compare UIDs |
| one object | 1.5 MiB, by etcd; 20,000 list items, by the webhooks ([bounds](../operate/sizing.md#bounds)) |
| memory of requests that are being handled | a room for each sort; one namespace takes at most three quarters of it, and what becomes free goes to who has least ([sizes](../operate/configuration.md#sizes)) |
| connections to the port | 2,000, of which 600 from one address |
| time that one object takes of a controller | a quarter of a worker ([why](../decisions/0013-where-the-time-goes.md)) |
| writes of the manager that are under way | 8 to 128; one object has at most three quarters of them, and a free place goes to who has least |
| **how many objects there are** | **nothing of Afloat**: caches keep most of each, templates and annotations included. Where tenants must not fill the manager's memory, limit them by a [quota](../operate/rights.md#where-teams-meet), as Kubernetes' own controllers need it, too |
| how fast a user writes | priority and fairness of the API server |
`))

// report writes the page.
func report(path string, w *world, results []result) error {
	machine, err := describe(w, results)
	if err != nil {
		return err
	}
	type described struct{ Name, Does, Answers string }
	data := struct {
		Pods    int
		Limit   int64
		Machine string
		Lines   []string
		Attacks []described
	}{Pods: pods, Limit: w.manager.limit >> 20, Machine: machine}
	for i := range results {
		data.Lines = append(data.Lines, results[i].line())
		data.Attacks = append(data.Attacks, described{results[i].attack.name, results[i].attack.does, results[i].answers})
	}
	var text bytes.Buffer
	if err := page.Execute(&text, data); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644) //nolint:gosec // it is a page of the documentation
}

// describe returns a sentence about the machine and the programs.
func describe(w *world, results []result) (string, error) {
	commit, err := exec.CommandContext(w.t.Context(), "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "", err
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return "", err
	}
	cpus, err := proc.CPUInfo()
	if err != nil {
		return "", err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return "", err
	}
	load, err := proc.LoadAvg()
	if err != nil {
		return "", err
	}
	client, err := discovery.NewDiscoveryClientForConfig(w.root)
	if err != nil {
		return "", err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return "", err
	}
	var took time.Duration
	for i := range results {
		took += results[i].took
	}
	return fmt.Sprintf("afloat %s, %s, %d attacks in %.0f s. %d cores %s, %.0f GiB, %s/%s, %s, Kubernetes %s; load at the end %.1f.", strings.TrimSpace(string(commit)),
		time.Now().UTC().Format(time.DateOnly), len(results)-1, took.Seconds(), runtime.NumCPU(), cpus[0].ModelName,
		float64(*memory.MemTotal)/(1<<20), runtime.GOOS, runtime.GOARCH, runtime.Version(), version.GitVersion, load.Load5), nil
}

// line returns the row of the table.
func (r *result) line() string {
	refused := 0
	for i := range r.rounds {
		refused += len(r.rounds[i].refused)
	}
	seconds := r.took.Seconds()
	return fmt.Sprintf("| %s | %d | %.2f | %.0f | %.0f | %s | %s | %s | %s | %s | %s | %s | %d |", r.attack.name, r.peak>>20, r.used/seconds, r.goroutines,
		float64(r.log)/1024/seconds,
		r.times(func(r round) time.Duration { return r.read }), r.times(func(r round) time.Duration { return r.pod }), r.times(func(r round) time.Duration { return r.large }),
		r.times(func(r round) time.Duration { return r.edit }), r.times(func(r round) time.Duration { return r.seen }),
		r.times(func(r round) time.Duration { return r.first }), r.times(func(r round) time.Duration { return r.end }), refused)
}

// times returns the median and the longest of a time of the rollouts.
func (r *result) times(of func(round) time.Duration) string {
	var all []time.Duration
	for i := range r.rounds {
		if took := of(r.rounds[i]); took > 0 {
			all = append(all, took)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("%d, %d", all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
}
