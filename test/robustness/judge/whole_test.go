package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// good tells of a record that has all that it should have.
func good(t *testing.T) *story {
	t.Helper()
	s := tell(t)
	s.set("clonesets", "web", `"replicas":1`, `"replicas":1,"readyReplicas":1,"updatedReplicas":1,"updateRevision":"web-r1","observedGeneration":104`)
	s.revisionOf("CloneSet", "web", "web-r1", 1)
	s.pods("CloneSet", "web", "web-r1", 1)
	s.r.Run.Faults = 2
	s.r.Faults = []record.Fault{{Kind: "kill"}, {Kind: "cut"}}
	s.ends()
	return s
}

// A record that is cut off, or in which nothing was played, must not look well.
func TestARecordThatIsNotWholeIsNotWell(t *testing.T) {
	without := func(name string) func(*story) {
		return func(s *story) {
			s.r.Phases = slices.DeleteFunc(s.r.Phases, func(p record.Phase) bool { return p.Name == name })
		}
	}
	for name, test := range map[string]struct {
		change func(*story)
		want   string
	}{
		"whole":                 {func(*story) {}, ""},
		"nothing":               {func(s *story) { s.r = record.Record{} }, "no workload"},
		"cut off in the rest":   {without(record.RestEnds), "cut off"},
		"faults did not end":    {without(record.FaultsEnd), "cut off"},
		"no rest":               {without(record.RestBegins), "no rest was reached"},
		"no writes of managers": {func(s *story) { s.r.Requests = nil }, "no write of a manager"},
		"no faults":             {func(s *story) { s.r.Faults = nil }, "2 faults were planned, and 0 were injected"},
		"faults that failed": {func(s *story) {
			for i := range s.r.Faults {
				s.r.Faults[i].Error = "it does not run"
			}
		}, "2 faults were planned, and 0 were injected"},
		"no rollouts": {func(s *story) { s.r.Rollouts = nil }, "no user"},
		"no rollout of a kind ends": {func(s *story) {
			s.r.Rollouts = append(s.r.Rollouts, slices.Repeat([]record.Rollout{{Resource: "daemonsets"}}, patient)...)
		}, "saw none"},
		"rollouts of a kind that nobody waited for": {func(s *story) {
			s.r.Rollouts = append(s.r.Rollouts, slices.Repeat([]record.Rollout{{Resource: "daemonsets", Hurried: true}}, patient)...)
		}, ""},
		"a write at rest that changes nothing": {func(s *story) {
			s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "PATCH", Begin: s.now.Add(time.Second), Status: 200,
				Path: "/apis/apps.kruise.io/v1beta1/namespaces/x/clonesets/web/status"})
		}, "nothing to do"},
		"an event about a workload at rest": {func(s *story) {
			s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "POST", Begin: s.now.Add(time.Second), Status: 201,
				Path: "/apis/events.k8s.io/v1/namespaces/x/events"})
		}, "nothing to do"},
		"an event about a manager at rest": {func(s *story) {
			s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "POST", Begin: s.now.Add(time.Second), Status: 201,
				Path: "/apis/events.k8s.io/v1/namespaces/kruise-system/events"})
		}, ""},
		"a write after the rest": {func(s *story) {
			s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "PATCH", Begin: s.now.Add(time.Hour), Status: 200,
				Path: "/apis/apps.kruise.io/v1beta1/namespaces/x/clonesets/web/status"})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := good(t)
			test.change(s)
			v, err := Judge(&s.r)
			if err != nil {
				t.Fatal(err)
			}
			found := ""
			for _, f := range v.Violations() {
				found += f.Text + "\n"
			}
			if (found == "") != (test.want == "") || !strings.Contains(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

// What the recorder could not read is an error, not an object without fields.
func TestAnObjectThatWasNotRecordedIsAnError(t *testing.T) {
	s := good(t)
	s.put("controllerrevisions", "x", "web-r2", `{"undecodable":"no kind"}`)
	if _, err := Judge(&s.r); err == nil || !strings.Contains(err.Error(), "no kind") {
		t.Errorf("the error is %v", err)
	}
}
