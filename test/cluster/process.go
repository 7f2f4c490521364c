package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// record identifies a running process, so that it is never mistaken for a later process with the same ID.
type record struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, from /proc/PID/stat
	Boot  string `json:"boot"`  // the kernel's id of this boot
}

// program is a program that a cluster runs.
type program struct {
	name string
	path string
	args []string
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// startTime returns when a process started, in clock ticks after boot. It returns false if there is no such
// process, or only a zombie.
func startTime(pid int) (uint64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	return parseStat(string(b))
}

// parseStat reads the fields after the command name, which may contain spaces and parentheses.
func parseStat(stat string) (uint64, bool) {
	f := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, false
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return start, err == nil
}

func newRecord(name string, pid int) (record, error) {
	start, ok := startTime(pid)
	if !ok {
		return record{}, fmt.Errorf("process %d of %s ended at once", pid, name)
	}
	return record{Name: name, PID: pid, Start: start, Boot: bootID()}, nil
}

// alive reports whether the recorded process still runs, with the same ID, start time and boot.
func (r record) alive() bool {
	if r.PID <= 0 || r.Boot != bootID() {
		return false
	}
	start, ok := startTime(r.PID)
	return ok && start == r.Start
}

func (c *cluster) recordPath(name string) string { return filepath.Join(c.dir, "pids", name+".json") }

func (c *cluster) logPath(name string) string { return filepath.Join(c.dir, "logs", name+".log") }

// process returns the record of a program, and whether it is alive.
func (c *cluster) process(name string) (record, bool) {
	var r record
	b, err := os.ReadFile(c.recordPath(name))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return record{}, false
	}
	return r, r.alive()
}

// processes returns all records, even those of dead processes.
func (c *cluster) processes() []record {
	files, _ := filepath.Glob(filepath.Join(c.dir, "pids", "*.json"))
	var all []record
	for _, f := range files {
		r, _ := c.process(strings.TrimSuffix(filepath.Base(f), ".json"))
		if r.PID > 0 {
			all = append(all, r)
		}
	}
	return all
}

// start runs a program in the background unless it runs already, in the cluster's namespaces if there are
// any. It returns whether it has started the program. The program outlives the caller.
func (c *cluster) start(p program) (bool, error) {
	if _, ok := c.process(p.name); ok {
		return false, nil
	}
	argv := append([]string{p.path}, p.args...)
	if c.spec.Root {
		argv = append(c.enter(), argv...)
	}
	return true, c.spawn(p.name, argv)
}

// spawn starts a process that is detached from this one, and records it.
func (c *cluster) spawn(name string, argv []string) error {
	log, err := os.OpenFile(c.logPath(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", name, err)
	}

	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+c.path(), "TMPDIR="+filepath.Join(c.dir, "tmp"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}

	go cmd.Wait() //nolint:errcheck // reaped only so that a program that ends at once is seen as ended
	if c.spec.Root {
		if err := c.cgroup().adopt(cmd.Process.Pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			cmd.Process.Kill() //nolint:errcheck // the error below says enough
			return fmt.Errorf("put %s into its control group: %w", name, err)
		}
	}

	r, err := newRecord(name, cmd.Process.Pid)
	if err != nil {
		return c.failed(name, err)
	}

	b, err := json.Marshal(r)
	if err != nil {
		return err
	}

	return writeFile(c.recordPath(name), b, 0o644)
}

// failed adds the last lines of a program's log to an error.
func (c *cluster) failed(name string, err error) error {
	path := c.logPath(name)
	return fmt.Errorf("%s: %w\nlast lines of %s:\n%s", name, err, path, tail(path, 12))
}

// tail returns the last n lines of a file, indented.
func tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	return "  " + strings.Join(lines, "\n  ")
}

// stopRecorded kills every recorded process that still runs, and waits until they are gone.
func (c *cluster) stopRecorded() error { return stopAll(c.processes()) }

func stopAll(all []record) error {
	for _, r := range all {
		if r.alive() {
			if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop %s (process %d): %w", r.Name, r.PID, err)
			}
		}
	}

	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, r := range all {
			if r.alive() {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes did not end after SIGKILL", left)
		}
	}
}

// writeFile writes a file atomically.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
