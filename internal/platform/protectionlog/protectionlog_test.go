package protectionlog

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var line = Line{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Event: "DeletionProtection", Operation: "DELETE", Kind: "Deployment",
	Namespace: "shop", Name: "web", UserAgent: "alice", Object: "deployments.apps shop/web"}

const text = `{"Time":"2026-01-02T03:04:05Z","Event":"DeletionProtection","Operation":"DELETE","Kind":"Deployment","Namespace":"shop",` +
	`"Name":"web","UserAgent":"alice","Object":"deployments.apps shop/web"}` + "\n"

// OPS-097: the log has one JSON object a line and is rotated; lines go elsewhere if there is none.
func TestTheProtectionLogIsRotatedJSONLines(t *testing.T) {
	t.Run("lines", lines)
	t.Run("rotation", rotation)
	t.Run("no folder", noFolder)
}

// lines: one JSON object a line, with the named fields, after what is there already.
func lines(t *testing.T) {
	dir, fallback := t.TempDir(), &bytes.Buffer{}
	for range 2 { // as after a restart
		l, err := Open(dir, fallback)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(text+text, read(t, filepath.Join(dir, fileName))); diff != "" {
		t.Errorf("lines of the file (-want +got):\n%s", diff)
	}
	if fallback.Len() > 0 {
		t.Errorf("lines that went elsewhere: got %s, want none", fallback)
	}
}

// rotation: the file is replaced when it would be larger than 100 MiB, and there are never more than three.
func rotation(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		line.Name = string(rune('a' + i))
		if err := l.Write(line); err != nil {
			t.Fatal(err)
		}
		l.size = 100<<20 - 10 // there is no room for another line
	}
	line.Name = "web"
	got := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var one Line
		if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, file.Name()))), &one); err != nil {
			t.Fatal(err)
		}
		got[file.Name()] = one.Name
	}
	if diff := cmp.Diff(map[string]string{"protection.log": "e", "protection.log.1": "d", "protection.log.2": "c"}, got); diff != "" {
		t.Errorf("the last line of each file (-want +got):\n%s", diff)
	}
}

// noFolder: without a folder that can be written to, lines go elsewhere.
func noFolder(t *testing.T) {
	fallback := &bytes.Buffer{}
	l, err := Open(filepath.Join(t.TempDir(), "absent"), fallback)
	if err == nil {
		t.Error("no word about it")
	}
	if err := l.Write(line); err != nil {
		t.Errorf("writing without a folder: %v", err)
	}
	if fallback.String() != text {
		t.Errorf("lines that went elsewhere: got %s, want %s", fallback, text)
	}
}

// A line is not lost when the file cannot be written to any more.
func TestFileThatFails(t *testing.T) {
	fallback := &bytes.Buffer{}
	l, err := Open(t.TempDir(), fallback)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.file.Close()
	if err := l.Write(line); err == nil {
		t.Error("writing to a file that fails: no error")
	}
	if fallback.String() != text {
		t.Errorf("lines that went elsewhere: got %s, want %s", fallback, text)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
