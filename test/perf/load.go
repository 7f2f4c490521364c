package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// load measures how busy the machine is, and how much of that is other work: figures that are taken beside
// other work are unreliable.
type load struct {
	// busy and all are the used and the available CPU seconds of the machine; measured are those of the
	// cluster, the manager and the harness.
	busy, all, measured float64
	// programs are the measured CPU seconds by the name of the program.
	programs map[string]float64
}

func readLoad(cluster string, manager int) load {
	l := load{programs: map[string]float64{}}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return l
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, field := range strings.Fields(line)[1:] {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 7 { // guest time is part of user time
			break
		}
		l.all += v / ticks
		if i != 3 && i != 4 { // idle, waiting for a disk
			l.busy += v / ticks
		}
	}
	for _, pid := range processesOf(cluster, manager) {
		if cpu, err := (process{pid}).cpu(); err == nil {
			l.measured += cpu
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			l.programs[strings.TrimSpace(string(name))] += cpu
		}
	}
	return l
}

// processesOf returns the processes of the cluster, this one and the manager, which scenario fast runs
// outside a cluster; 0 means no manager.
func processesOf(cluster string, manager int) []int {
	pids := []int{os.Getpid()}
	if cluster == "" && manager != 0 {
		pids = append(pids, manager)
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil || cluster == "" {
		return pids
	}
	for _, path := range groups {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("/afloat-"+cluster)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// others returns the part of the machine, from 0 to 1, that others used since before.
func (l load) others(before load) float64 {
	all := l.all - before.all
	if all <= 0 {
		return 0
	}
	return max(0, (l.busy-before.busy)-(l.measured-before.measured)) / all
}

// perPod returns the CPU milliseconds per pod since before, of the programs that took at least 0.1.
func (l load) perPod(before load, pods int) map[string]float64 {
	all := map[string]float64{}
	for name, cpu := range l.programs {
		if each := math.Round(10000*(cpu-before.programs[name])/float64(max(pods, 1))) / 10; each > 0 {
			all[name] = each
		}
	}
	return all
}

// disturbed notes in the report that other programs used the CPU during a step, or that the cluster itself
// disturbed it.
func (r *report) disturbed(p *phase) {
	if p.Lost > 0 {
		r.note("During %q the cluster took pods out of service %d times because simulated nodes were late: repeat the measurement.", p.Name,
			p.Lost)
	}
	if p.Others > 0.1 {
		by := "manager"
		if p.Bare {
			by = "bare client"
		}
		r.note("Others used %.0f %% of the machine during %q by the %s: preliminary.", 100*p.Others, p.Name, by)
	}
}
