package wording

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

func plan() *Report {
	p := &Report{Summary: []string{"3 of 3 pods", "2 pods to move"}}
	p.Add("pod web-1", "wait: %s: %s", "NotReady", "container \"a\"\nis not ready")
	p.AddGroup("wait: Paused", []string{"a", "b", "c", "d"}, "the update is paused")
	p.AddGroup("create from web-1", []string{"e"}, "")
	p.AddGroup("delete", []string{"f", "g", "h"}, "")
	return p
}

func TestAPlanIsALineForEachDecision(t *testing.T) {
	const want = "3 of 3 pods\n2 pods to move\npod web-1: wait: NotReady: container \"a\"\nis not ready\n" +
		"wait: Paused: 4 pods (a, b, c ...): the update is paused\ncreate from web-1: 1 pod (e)\ndelete: 3 pods (f, g, h)\n"
	if diff := cmp.Diff(want, plan().String()); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
}

// OPS-095 (part): a plan in the log is one record, in which a program finds what is decided about a pod.
func TestAPlanIsOneRecordInALogOfJSON(t *testing.T) {
	var log bytes.Buffer
	logr.FromSlogHandler(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})).V(2).Info("Plan", plan().Record()...)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Fatalf("lines of the log: got %d, want 1: %s", n, log.String())
	}
	var record struct {
		Msg       string
		Summary   []string
		Decisions map[string]string
	}
	if err := json.Unmarshal(log.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"pod web-1": "wait: NotReady: container \"a\"\nis not ready",
		"wait: Paused": "4 pods (a, b, c ...): the update is paused", "create from web-1": "1 pod (e)",
		"delete": "3 pods (f, g, h)"}
	if diff := cmp.Diff(want, record.Decisions); diff != "" {
		t.Errorf("decisions in the record (-want +got):\n%s", diff)
	}
	if record.Msg != "Plan" {
		t.Errorf("message of the record: got %q, want \"Plan\"", record.Msg)
	}
	if len(record.Summary) != 2 {
		t.Errorf("summary in the record: got %v, want 2 lines", record.Summary)
	}
}
