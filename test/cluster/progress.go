package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// progress reports progress to the user. On a terminal, the current step is an animated line; otherwise every
// step is a plain line.
type progress struct {
	w        io.Writer
	terminal bool
}

func newProgress(f *os.File) *progress {
	info, err := f.Stat()
	return &progress{w: f,
		terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (p *progress) say(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// step is an action that takes time.
type step struct {
	p        *progress
	what     string
	expected time.Duration
	start    time.Time
	mu       sync.Mutex
	detail   string
	stop     chan struct{}
	done     chan struct{}
}

// step starts a step; expected is zero if the duration is unknown.
func (p *progress) step(what string, expected time.Duration) *step {
	s := &step{p: p, what: what, expected: expected, start: time.Now(), stop: make(chan struct{}),
		done: make(chan struct{})}
	if !p.terminal && expected > 5*time.Second {
		p.say("… %s (about %s on two cores)", what, human(expected))
	}
	go s.run()
	return s
}

// set changes the detail that is shown after the step.
func (s *step) set(detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detail = detail
}

func (s *step) run() {
	defer close(s.done)
	every := time.Minute
	if s.p.terminal {
		every = 120 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()

	for i := 0; ; i++ {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.draw(i)
		}
	}
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (s *step) draw(i int) {
	s.mu.Lock()
	detail := s.detail
	s.mu.Unlock()
	if detail != "" {
		detail = "  " + detail
	}

	elapsed := time.Since(s.start)
	if !s.p.terminal {
		s.p.say("  still %s after %s%s", s.what, human(elapsed), detail)
		return
	}

	bar := ""
	if s.expected > 0 {
		full := min(20, int(20*elapsed/s.expected))
		bar = fmt.Sprintf(" %s%s of about %s", strings.Repeat("█", full), strings.Repeat("░", 20-full),
			human(s.expected))
	}

	fmt.Fprintf(s.p.w, "\r\x1b[K%c %s  %s%s%s", spinner[i%len(spinner)], s.what, human(elapsed), bar, detail)
}

// end finishes the step and returns the given error.
func (s *step) end(err error) error {
	close(s.stop)
	<-s.done
	if s.p.terminal {
		fmt.Fprint(s.p.w, "\r\x1b[K")
	}
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	s.p.say("%s %s  %s", mark, s.what, human(time.Since(s.start)))
	return err
}

func human(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	default:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
}
