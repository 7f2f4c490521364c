package record

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// Writer appends lines to a file. It may be used by many at once.
type Writer struct {
	mutex   sync.Mutex
	file    *os.File
	buffer  *bufio.Writer
	encoder *json.Encoder
	last    time.Time
	err     error
}

// Create makes the file.
func Create(path string) (*Writer, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("making the record: %w", err)
	}
	buffer := bufio.NewWriterSize(file, 1<<20)
	return &Writer{file: file, buffer: buffer, encoder: json.NewEncoder(buffer), last: time.Now()}, nil
}

// Write appends a line. Close returns the first error.
func (w *Writer) Write(line Line) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if err := w.encoder.Encode(line); err != nil {
		w.err = cmp.Or(w.err, err)
	}
	if line.Change != nil && line.Change.Moves() {
		w.last = time.Now()
	}
}

// Moved returns when the last change was written that says that a rollout is still going on.
func (w *Writer) Moved() time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.last
}

// Close writes what is left, and closes the file.
func (w *Writer) Close() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return errors.Join(w.err, w.buffer.Flush(), w.file.Close())
}

// Moves reports whether the change belongs to a rollout. Leases and nodes are renewed all the time.
func (c *Change) Moves() bool { return c.Resource != "leases" && c.Resource != "nodes" }

// Read reads a record. A last line that is not whole is left out, because the writer may have been killed.
func Read(path string) (*Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	defer file.Close()

	r := &Record{}
	decoder := json.NewDecoder(bufio.NewReaderSize(file, 1<<20))
	for {
		var line Line
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the record: %w", err)
		}
		r.Add(line)
	}
	r.Sort()

	return r, nil
}

// Add adds what a line has.
func (r *Record) Add(line Line) {
	switch {
	case line.Run != nil:
		r.Run = *line.Run
	case line.Rollout != nil:
		r.Rollouts = append(r.Rollouts, *line.Rollout)
	case line.Change != nil:
		r.Changes = append(r.Changes, *line.Change)
	case line.Request != nil:
		r.Requests = append(r.Requests, *line.Request)
	case line.Fault != nil:
		r.Faults = append(r.Faults, *line.Fault)
	case line.Phase != nil:
		r.Phases = append(r.Phases, *line.Phase)
	case line.Sample != nil:
		r.Samples = append(r.Samples, *line.Sample)
	}
}

// Sort brings all into order. Requests and faults are written when they end, not when they begin.
func (r *Record) Sort() {
	slices.SortStableFunc(r.Changes, func(a, b Change) int { return cmp.Compare(a.Revision, b.Revision) })
	slices.SortStableFunc(r.Requests, func(a, b Request) int { return a.Begin.Compare(b.Begin) })
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return a.Begin.Compare(b.Begin) })
	slices.SortStableFunc(r.Phases, func(a, b Phase) int { return a.Time.Compare(b.Time) })
}
