package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// auditLog reads the API server's audit log of writes, from a position on.
type auditLog struct {
	path     string
	position int64
}

// writes counts what one client wrote.
type writes struct {
	// done are the writes that succeeded, by "verb resource/subresource"; refused those that did not.
	done, refused map[string]int
}

// pods is the number of successful writes of pods and their subresources.
func (w writes) pods() int {
	n := 0
	for key, count := range w.done {
		if _, resource, _ := strings.Cut(key, " "); resource == "pods" || strings.HasPrefix(resource, "pods/") {
			n += count
		}
	}
	return n
}

func (w writes) total() int {
	n := 0
	for _, count := range w.done {
		n += count
	}
	for _, count := range w.refused {
		n += count
	}
	return n
}

// writeLog counts what clients write.
type writeLog interface {
	// read adds to counts what a client wrote since the last read.
	read(counts *writes, agent string) error
}

// skip goes to the end of the log.
func (a *auditLog) skip() error {
	info, err := os.Stat(a.path)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	a.position = info.Size()
	return nil
}

// read adds to counts what the client wrote since the last read. Agents are distinguished by their prefix.
func (a *auditLog) read(counts *writes, agent string) error {
	file, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.position, io.SeekStart); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if counts.done == nil {
		counts.done, counts.refused = map[string]int{}, map[string]int{}
	}
	reader := bufio.NewReaderSize(file, 1<<20)
	wanted := []byte(`"userAgent":"` + agent)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF { // a line that is not complete yet is read next time
			return nil
		}
		if err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		a.position += int64(len(line))
		if !bytes.Contains(line, wanted) {
			continue
		}
		var event struct {
			Verb           string
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		key := event.Verb + " " + event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			key += "/" + event.ObjectRef.Subresource
		}
		if event.ResponseStatus.Code < 300 {
			counts.done[key]++
		} else {
			counts.refused[fmt.Sprintf("%s: %d", key, event.ResponseStatus.Code)]++
		}
	}
}
