package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// story is a record made by hand. Each step takes a second.
type story struct {
	t        *testing.T
	r        record.Record
	now      time.Time
	revision int64
	manager  string
}

// tell begins a story: manager a.1 has the lease, and there are three nodes.
func tell(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), revision: 100}
	s.lease("a.1")
	for n := range 3 {
		s.put("nodes", "", fmt.Sprintf("n%d", n), fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, n))
	}
	return s
}

// lease gives the lease to a manager.
func (s *story) lease(to string) {
	s.by(to, func() {
		s.put("leases", "kruise-system", "kruise-manager", fmt.Sprintf(`{"spec":{"holderIdentity":%q}}`, to))
	})
}

// by lets a manager make changes.
func (s *story) by(manager string, change func()) {
	s.manager = manager
	change()
	s.manager = ""
}

// put stores an object; an empty one is removed.
func (s *story) put(resource, namespace, name, object string) {
	s.t.Helper()
	if object != "" && !json.Valid([]byte(object)) {
		s.t.Fatalf("%s is not valid: %s", name, object)
	}
	s.now, s.revision = s.now.Add(time.Second), s.revision+1
	s.r.Changes = append(s.r.Changes, record.Change{Revision: s.revision, Time: s.now, Resource: resource,
		Namespace: namespace, Name: name, Object: json.RawMessage(object)})
	if s.manager == "" {
		return
	}
	r := record.Request{Manager: s.manager, Verb: "PATCH", Begin: s.now.Add(-time.Millisecond), End: s.now, Sent: true,
		Status: 200, Revision: s.revision, Path: "/api/v1/namespaces/" + namespace + "/" + resource + "/" + name}
	if object == "" {
		r.Verb, r.Revision = "DELETE", 0
	}
	s.r.Requests = append(s.r.Requests, r)
}

// set stores a workload, with a UID that is its name.
func (s *story) set(resource, name, spec, status string) {
	s.t.Helper()
	s.put(resource, "x", name, fmt.Sprintf(
		`{"metadata":{"name":%[1]q,"namespace":"x","uid":%[1]q,"generation":%[2]d},"spec":{%[3]s},"status":{%[4]s}}`,
		name, s.revision, spec, status))
}

// revisionOf stores a ControllerRevision of a workload.
func (s *story) revisionOf(kind, workload, name string, number int) {
	s.put("controllerrevisions", "x", name, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"x","ownerReferences":[%s]},"revision":%d}`,
		name, owner(kind, workload), number))
}

func owner(kind, name string) string {
	return fmt.Sprintf(`{"apiVersion":"apps.kruise.io/v1beta1","kind":%q,"name":%[2]q,"uid":%[2]q,"controller":true}`, kind, name)
}

// pod is a pod in service; its fields change what is usual.
type pod struct {
	kind, workload, name, node, revision, image, runs, id, phase, ready, going string
	claim, labels, annotations                                                 string
	restarts                                                                   int
}

// object returns the pod as JSON.
func (p pod) object() string {
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	image, going, claim := or(p.image, "app:1"), "", ""
	if p.going != "" {
		going = `"deletionTimestamp":"2026-01-01T00:00:00Z",`
	}
	if p.claim != "" {
		claim = fmt.Sprintf(`"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":%q}}],`, p.claim)
	}
	return fmt.Sprintf(`{"metadata":{"name":%[1]q,"namespace":"x","uid":%[1]q,%[2]s"ownerReferences":[%[3]s],
		"labels":{"app":%[4]q,"controller-revision-hash":%[5]q,"apps.kruise.io/cloneset-instance-id":%[6]q%[7]s},
		"annotations":{%[8]s}},
		"spec":{%[9]s"nodeName":%[10]q,"containers":[{"name":"main","image":%[11]q}]},
		"status":{"phase":%[12]q,"podIP":"10.0.0.1","conditions":[{"type":"Ready","status":%[13]q}],
		"containerStatuses":[{"name":"main","image":%[14]q,"restartCount":%[15]d}]}}`,
		p.name, going, owner(p.kind, p.workload), p.workload, p.revision, or(p.id, p.name), p.labels, p.annotations, claim,
		or(p.node, "n0"), image, or(p.phase, "Running"), or(p.ready, "True"), or(p.runs, image), p.restarts)
}

// pod stores a pod.
func (s *story) pod(p pod) {
	s.t.Helper()
	s.put("pods", "x", p.name, p.object())
}

// pods stores some pods of a workload, named after it, and returns the usual one.
func (s *story) pods(kind, workload, revision string, n int) {
	for i := range n {
		s.pod(pod{kind: kind, workload: workload, name: fmt.Sprintf("%s-%d", workload, i), revision: revision,
			node: fmt.Sprintf("n%d", i)})
	}
}

// later lets time pass in which managers learn everything.
func (s *story) later() { s.now = s.now.Add(10 * Lag) }

// found returns the rules of the violations, and of the known consequences.
func (s *story) found() ([]string, []string) {
	s.t.Helper()
	v, err := Judge(&s.r)
	if err != nil {
		s.t.Fatal(err)
	}
	var violations, known []string
	for _, f := range v.Findings {
		switch {
		case (f.Rule == converges.name || f.Rule == whole.name) && s.r.Phase(record.RestBegins).IsZero():
		case f.Known:
			known = append(known, f.Rule)
		default:
			violations = append(violations, f.Rule)
		}
	}
	return violations, known
}

// ends makes the present the end of the record, at rest, and the record whole.
func (s *story) ends() {
	for _, name := range []string{record.FaultsBegin, record.FaultsEnd, record.RestBegins} {
		s.r.Phases = append(s.r.Phases, record.Phase{Name: name, Time: s.now})
	}
	s.r.Phases = append(s.r.Phases, record.Phase{Name: record.RestEnds, Time: s.now.Add(time.Minute)})
	s.r.Rollouts = append(s.r.Rollouts, record.Rollout{Resource: "clonesets", Over: true})
}

// bothWays is a story of a record that violates a rule, and of one that is nearly the same and does not.
type bothWays struct {
	rule *rule
	tell func(s *story, violate bool)
}

// tellBothWays tells stories both ways, and looks what the judge finds.
func tellBothWays(t *testing.T, tests map[string]bothWays) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, violate := range []bool{true, false} {
				s := tell(t)
				test.tell(s, violate)
				violations, _ := s.found()
				if violate != slices.Contains(violations, test.rule.name) || !violate && len(violations) > 0 {
					t.Errorf("violated %t: found %v, the rule is %s", violate, violations, test.rule.name)
				}
			}
		})
	}
}
