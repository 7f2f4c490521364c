package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks are the kernel's clock ticks per second in /proc/PID/stat.
const ticks = 100

// process is a running program of which only the id is known.
type process struct{ pid int }

// fields returns the fields of /proc/PID/stat after the command's name; the state is the first. None if the
// process is gone.
func (p process) fields() []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

func (p process) alive() bool {
	f := p.fields()
	return len(f) > 0 && f[0] != "Z" && f[0] != "X"
}

// cpu returns the seconds that the process has computed.
func (p process) cpu() (float64, error) {
	f := p.fields()
	if len(f) < 13 {
		return 0, errors.New("the manager has ended")
	}
	user, err1 := strconv.ParseFloat(f[11], 64)
	system, err2 := strconv.ParseFloat(f[12], 64)
	return (user + system) / ticks, errors.Join(err1, err2)
}

// memory in MiB: resident now, its peak since resetPeak, and proportional, in which shared memory counts only
// once.
type memory struct {
	RSS  float64 `json:"rssMiB"`
	Peak float64 `json:"peakMiB"`
	PSS  float64 `json:"pssMiB"`
}

func (p process) memory() (memory, error) {
	var m memory
	for _, from := range []struct {
		file, key string
		to        *float64
	}{{"status", "VmRSS:", &m.RSS}, {"status", "VmHWM:", &m.Peak}, {"smaps_rollup", "Pss:", &m.PSS}} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, from.file))
		if err != nil {
			return m, fmt.Errorf("memory of the manager: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == from.key {
				kib, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return m, fmt.Errorf("memory of the manager: %w", err)
				}
				*from.to = kib / 1024
			}
		}
	}
	m.Peak = max(m.Peak, m.RSS) // the kernel adds up what each CPU counts by itself, and the peak only now and then
	return m, nil
}

// resetPeak resets the peak. If the kernel does not allow it, the peak is that of the whole lifetime.
func (p process) resetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0)
}

// manager is the program that is measured.
type manager struct {
	process
	run, command  []string
	ready, metric string
	pprof         string
	dir           string
	// log, if not empty, is the file for the manager's output; the manager then runs as a child of this
	// process.
	log string
}

// newManager reads from the environment how to run the manager; see doc.go.
func newManager() (*manager, error) {
	m := &manager{run: strings.Fields(os.Getenv("PERF_RUN")), ready: os.Getenv("PERF_READY"), metric: os.Getenv("PERF_METRICS"),
		pprof: os.Getenv("PERF_PPROF")}
	line := os.Getenv("PERF_MANAGER")
	if len(m.run) == 0 || line == "" {
		return nil, errors.New("PERF_RUN and PERF_MANAGER must say how to start the manager")
	}
	dir, err := os.MkdirTemp("", "afloat-perf-")
	if err != nil {
		return nil, fmt.Errorf("folder for the manager: %w", err)
	}
	m.dir = dir
	m.command = []string{"perf-manager", "--", "/bin/sh", "-c", `echo $$ >"` + m.pidFile() + `.tmp" && mv "` + m.pidFile() + `.tmp" "` +
		m.pidFile() + `" && exec ` + line}
	return m, nil
}

func (m *manager) pidFile() string { return filepath.Join(m.dir, "pid") }

// start starts the manager and returns at once with its process id known.
func (m *manager) start(ctx context.Context) error {
	if err := os.Remove(m.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if m.log != "" {
		return m.startHere()
	}
	out, err := exec.CommandContext(ctx, m.run[0], append(m.run[1:], m.command...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("starting the manager: %w: %s", err, out)
	}
	return poll(ctx, "the manager starts", 10*time.Millisecond, func(context.Context) (bool, error) {
		b, err := os.ReadFile(m.pidFile())
		if err != nil {
			return false, nil //nolint:nilerr // not there yet
		}
		m.pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil, err
	})
}

// startHere starts the manager as a child, which ends with this process at the latest.
func (m *manager) startHere() error {
	log, err := os.Create(m.log)
	if err != nil {
		return fmt.Errorf("log of the manager: %w", err)
	}
	command := exec.Command(m.command[0], m.command[1:]...) //nolint:noctx // stop ends it, gently
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), "GOMEMLIMIT="+os.Getenv("PERF_MEMORY"))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer log.Close()
		runtime.LockOSThread() // the child ends with the thread that started it
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // stop checks how it ended
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting the manager: %w", err)
	}
	m.pid = command.Process.Pid
	return nil
}

// stop ends the manager that was started here, gently.
func (m *manager) stop(ctx context.Context) error {
	if m == nil || m.pid == 0 {
		return nil
	}
	pid := m.pid
	m.pid = 0
	p := process{pid}
	if !p.alive() {
		return errors.New("the manager ended by itself")
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the manager: %w", err)
	}
	return poll(ctx, "the manager ends", 20*time.Millisecond, func(context.Context) (bool, error) { return !p.alive(), nil })
}

// isReady asks the manager whether it is ready.
func (m *manager) isReady(ctx context.Context) (bool, error) {
	if !m.alive() {
		return false, errors.New("the manager ended while it was awaited")
	}
	if m.ready == "" {
		return true, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ready, nil)
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, nil //nolint:nilerr // not yet
	}
	return response.StatusCode == http.StatusOK, response.Body.Close()
}

// poll asks until the answer is yes, for at most patience.
func poll(ctx context.Context, what string, every time.Duration, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		yes, err := ask(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
