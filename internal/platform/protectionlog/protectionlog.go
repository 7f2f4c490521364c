// Package protectionlog writes what protection refused, one JSON object per line (OPS-097).
package protectionlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	fileName = "protection.log"
	// mostBytes is the size from which a file is replaced by a new one, mostFiles how many there are, with
	// the present one.
	mostBytes = 100 << 20
	mostFiles = 3
)

// Line is one refusal. Names of fields that OpenKruise has are its own; UserAgent is the name of the user.
type Line struct {
	Time                                               time.Time
	Event, Operation, Kind, Namespace, Name, UserAgent string
	// Object is the resource with its group, and the object's namespace and name, since kinds of two groups
	// may have one name.
	Object string
}

// Log is a file with lines; when it is full, it is renamed and a new one begun. What cannot be written to it
// goes to the fallback.
type Log struct {
	fallback io.Writer

	mu   sync.Mutex
	path string
	file *os.File
	size int64
}

// Open opens the log in a folder. The log can always be used: the error says why lines go to the fallback.
func Open(folder string, fallback io.Writer) (*Log, error) {
	l := &Log{path: filepath.Join(folder, fileName), fallback: fallback}
	return l, l.open()
}

func (l *Log) open() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the protection log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("opening the protection log: %w", err), file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write writes a line.
func (l *Log) Write(line Line) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("writing to the protection log: %w", err)
	}

	text = append(text, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.file != nil && l.size+int64(len(text)) > mostBytes {
		err = l.rotate()
	}
	if l.file != nil {
		n, failed := l.file.Write(text)
		if l.size += int64(n); failed == nil {
			return err
		}
		err = errors.Join(err, failed)
	}
	_, failed := l.fallback.Write(text)
	return errors.Join(err, failed)
}

// rotate begins a new file. If that is not possible, there is none from then on.
func (l *Log) rotate() error {
	err := l.file.Close()
	l.file = nil

	for i := mostFiles - 1; i > 0 && err == nil; i-- {
		from := l.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", l.path, i-1)
		}
		if err = os.Rename(from, fmt.Sprintf("%s.%d", l.path, i)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}

	if err != nil {
		return fmt.Errorf("rotating the protection log: %w", err)
	}

	return l.open()
}
