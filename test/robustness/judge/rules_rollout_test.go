package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

const inPlacePolicy = `"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible","maxUnavailable":1}}`

// made is a pod as it is when it has just been made: it is not ready.
func made(p pod) pod {
	p.ready, p.phase = "False", "Pending"
	return p
}

func leaving(p pod) pod {
	p.going = "yes"
	return p
}

func agent(node int, name string) pod {
	return pod{kind: "DaemonSet", workload: "agent", name: "agent-" + name, node: fmt.Sprintf("n%d", node)}
}

func TestRulesOfRolloutsSeeTheirViolation(t *testing.T) {
	ordered := func(s *story, replicas, pods int) {
		s.set("statefulsets", "db", fmt.Sprintf(`"replicas":%d,%s`, replicas, inPlacePolicy), "")
		s.revisionOf("StatefulSet", "db", "db-r1", 1)
		s.pods("StatefulSet", "db", "db-r1", pods)
		s.later()
	}
	tellBothWays(t, map[string]bothWays{
		"a pod of a CloneSet is marked instead of updated": {&kept, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":3,`+inPlacePolicy, "")
			s.pods("CloneSet", "web", "web-r1", 3)
			s.later()
			p := clone(0)
			p.labels = `,"apps.kruise.io/specified-delete":"true"`
			if !violate {
				s.pod(p) // by a user
			}
			s.by("a.1", func() { s.pod(p); s.pod(leaving(p)) })
		}},
		"a pod of a StatefulSet is deleted instead of updated": {&kept, func(s *story, violate bool) {
			ordered(s, map[bool]int{true: 3, false: 2}[violate], 3)
			s.by("a.1", func() { s.pod(leaving(ofSet(2))) })
		}},
		"a daemon is deleted instead of updated": {&kept, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"rollingUpdateType":"InPlaceIfPossible","maxUnavailable":1}}`, "")
			for n := range 3 {
				s.pod(agent(n, fmt.Sprint(n)))
			}
			s.later()
			p := agent(0, "0")
			if violate {
				p.going = "yes"
			} else {
				p.ready, p.revision = "False", "agent-r2"
			}
			s.by("a.1", func() { s.pod(p) })
		}},
		"a low ordinal is updated before a high one": {&sequence, func(s *story, violate bool) {
			ordered(s, 3, 3)
			s.revisionOf("StatefulSet", "db", "db-r2", 2)
			p := ofSet(map[bool]int{true: 1, false: 2}[violate])
			p.ready = "False"
			s.by("a.1", func() { s.pod(p) })
		}},
		"ordinals come all at once": {&oneByOne, func(s *story, violate bool) {
			ordered(s, 4, 2)
			s.by("a.1", func() {
				s.pod(made(ofSet(2)))
				if !violate {
					s.pod(ofSet(2))
				}
				s.pod(made(ofSet(3)))
			})
		}},
		"an ordinal is left out": {&oneByOne, func(s *story, violate bool) {
			ordered(s, 4, 2)
			s.by("a.1", func() { s.pod(made(ofSet(map[bool]int{true: 3, false: 2}[violate]))) })
		}},
		"an ordinal comes above one that was lost": {&oneByOne, func(s *story, violate bool) {
			ordered(s, 3, 2)
			p := ofSet(1)
			p.ready = "False"
			s.pod(p) // so says its node
			if violate {
				s.later()
			}
			s.by("a.1", func() { s.pod(made(ofSet(2))) })
		}},
		"a pod that the partition keeps back is made anew at the new revision": {&heldBack, func(s *story, violate bool) {
			s.set("statefulsets", "db", statefulSpec+`,"podManagementPolicy":"Parallel"`, `"currentRevision":"db-r1","updateRevision":"db-r2"`)
			s.revisionOf("StatefulSet", "db", "db-r1", 1)
			s.revisionOf("StatefulSet", "db", "db-r2", 2)
			s.pods("StatefulSet", "db", "db-r1", 3)
			s.later()
			s.put("pods", "x", "db-1", "")
			p := ofSet(1)
			if violate {
				p.revision = "db-r2"
			}
			s.by("a.1", func() { s.pod(made(p)) })
		}},
		"pods of the new revision come beyond the partition": {&heldBack, func(s *story, violate bool) {
			s.set("clonesets", "web", cloneSpec, `"currentRevision":"web-r1","updateRevision":"web-r2"`)
			s.revisionOf("CloneSet", "web", "web-r1", 1)
			s.revisionOf("CloneSet", "web", "web-r2", 2)
			s.pods("CloneSet", "web", "web-r1", 2)
			p := clone(2)
			p.revision = "web-r2"
			s.pod(p)
			s.later()
			s.put("pods", "x", "web-0", "")
			p = clone(0)
			if violate {
				p.revision = "web-r2"
			}
			s.by("a.1", func() { s.pod(made(p)) })
		}},
		"a DaemonSet surges everywhere": {&crowd, func(s *story, violate bool) {
			s.set("daemonsets", "agent", `"updateStrategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}`, "")
			for n := range 3 {
				s.pod(agent(n, fmt.Sprint(n)))
			}
			s.later()
			s.by("a.1", func() {
				s.pod(made(agent(0, "a")))
				if !violate {
					s.pod(agent(0, "a"))
				}
				s.pod(made(agent(1, "b")))
			})
		}},
		"a sidecar is changed that the partition keeps": {&behind, func(s *story, violate bool) {
			s.put("sidecarsets", "", "logs", fmt.Sprintf(`{"metadata":{"name":"logs","uid":"logs"},"spec":{"selector":{"matchLabels":{"app":"web"}},
				"containers":[{"name":"main","image":"app:2"}],"updateStrategy":{"maxUnavailable":3,"partition":%d}}}`,
				map[bool]int{true: 2, false: 1}[violate]))
			s.pods("CloneSet", "web", "web-r1", 3)
			s.by("a.1", func() {
				for i := range 2 {
					p := clone(i)
					p.image, p.runs = "app:2", "app:1"
					s.pod(p)
				}
			})
		}},
		"a pod of a CloneSet has no instance ID": {&instances, func(s *story, violate bool) {
			s.set("clonesets", "web", cloneSpec, "")
			text := clone(0).object()
			if violate {
				text = strings.Replace(text, `"apps.kruise.io/cloneset-instance-id"`, `"other"`, 1)
			}
			s.put("pods", "x", "web-0", text)
		}},
		"a claim is collected under a pod": {&claims, func(s *story, violate bool) {
			p := clone(0)
			p.claim = "data"
			s.pod(p)
			s.put("persistentvolumeclaims", "x", "data", `{"metadata":{"name":"data"}}`)
			if !violate {
				s.put("pods", "x", "web-0", "")
			}
			s.put("persistentvolumeclaims", "x", "data", "") // by nobody that is known
		}},
		"a pod is in no subset": {&quota, func(s *story, violate bool) {
			s.set("workloadspreads", "spread", `"targetRef":{"kind":"CloneSet","name":"web"},"subsets":[{"name":"first"}]`, "")
			p := clone(0)
			if !violate {
				p.annotations = `"apps.kruise.io/matched-workloadspread":"{\"name\":\"spread\",\"subset\":\"first\"}"`
			}
			s.pod(p)
		}},
		"pods that came back count as lost": {&availability, func(s *story, violate bool) {
			clones(s)
			s.pod(down(2)) // so says its node
			if violate {
				s.pod(clone(2))
			}
			s.by("a.1", func() { s.pod(down(0)) })
			if violate {
				s.by("a.1", func() { s.pod(down(1)) })
			}
		}},
		"pods that came back count as lost for a budget": {&budget, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":3,"updateStrategy":{"rollingUpdate":{"maxUnavailable":3}}`, "")
			s.set("podunavailablebudgets", "web-budget", `"selector":{"matchLabels":{"app":"web"}},"maxUnavailable":1`, "")
			s.pods("CloneSet", "web", "web-r1", 3)
			s.later()
			s.pod(down(2)) // so says its node
			if violate {
				s.pod(clone(2))
			}
			s.by("a.1", func() { s.pod(down(0)) })
			if violate {
				s.by("a.1", func() { s.pod(down(1)) })
			}
		}},
		"a pod goes beside one that a user deleted, which did not serve": {&reason, func(s *story, violate bool) {
			clones(s)
			s.pod(down(0))
			s.set("clonesets", "web", `"replicas":2`, "")
			s.later()
			s.pod(leaving(down(0))) // by a user
			if violate {
				s.later()
			}
			s.by("a.1", func() {
				p := down(1)
				s.pod(p)
				s.pod(leaving(p))
			})
		}},
		"the pods of a scale-in that is new go in the wrong order": {&condemned, func(s *story, violate bool) {
			stateful(s)
			s.set("statefulsets", "db", `"replicas":1`, "") // a moment ago
			s.by("a.1", func() { s.pod(leaving(ofSet(map[bool]int{true: 1, false: 2}[violate]))) })
		}},
		"the image of the new revision never comes": {&converges, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":1,"template":{"spec":{"containers":[{"name":"main","image":"app:2"}]}}`,
				`"replicas":1,"readyReplicas":1,"updatedReplicas":1,"updateRevision":"web-r1","observedGeneration":104`)
			s.revisionOf("CloneSet", "web", "web-r1", 1)
			p := clone(0)
			p.image = map[bool]string{true: "app:1", false: "app:2"}[violate]
			s.pod(p)
			s.ends()
		}},
		"a pod has lost its claim": {&converges, func(s *story, violate bool) {
			s.set("clonesets", "web", `"replicas":1`, `"replicas":1,"readyReplicas":1,"updatedReplicas":1,"updateRevision":"web-r1","observedGeneration":104`)
			s.revisionOf("CloneSet", "web", "web-r1", 1)
			p := clone(0)
			p.claim = "data"
			s.pod(p)
			if !violate {
				s.put("persistentvolumeclaims", "x", "data", `{"metadata":{"name":"data"}}`)
			}
			s.ends()
		}},
		"a job ends before it was on each node": {&converges, func(s *story, violate bool) {
			s.set("broadcastjobs", "job", "", completed+`"active":0`)
			for i := range map[bool]int{true: 2, false: 3}[violate] {
				s.pod(pod{kind: "BroadcastJob", workload: "job", name: fmt.Sprintf("job-%d", i), node: fmt.Sprintf("n%d", i), phase: "Succeeded"})
			}
			s.ends()
		}},
		"a budget counts pods that are not there": {&converges, func(s *story, violate bool) {
			s.set("podunavailablebudgets", "web", `"selector":{"matchLabels":{"app":"web"}},"maxUnavailable":1`, fmt.Sprintf(
				`"observedGeneration":%d,"desiredAvailable":2,"currentAvailable":%d,"unavailableAllowed":1`, s.revision, map[bool]int{true: 4, false: 3}[violate]))
			s.pods("CloneSet", "web", "web-r1", 3)
			s.ends()
		}},
		"a subset counts pods that are not there": {&converges, func(s *story, violate bool) {
			s.set("workloadspreads", "spread", `"subsets":[{"name":"first"}]`, fmt.Sprintf(
				`"observedGeneration":%d,"subsetStatuses":[{"name":"first","replicas":%d}]`, s.revision, map[bool]int{true: 1}[violate]))
			s.ends()
		}},
	})
}

// A manager that goes on without the lease is no known consequence, and what two managers did to one workload
// excuses nothing of another one.
func TestWhatTwoManagersDoIsKnownForAWhileOnly(t *testing.T) {
	s := tell(t)
	clones(s)
	s.set("clonesets", "other", `"replicas":1`, "")
	s.lease("b.1")
	s.by("a.1", func() { s.pod(clone(0)) })
	s.by("b.1", func() {
		for i := range 2 {
			s.pod(pod{kind: "CloneSet", workload: "other", name: fmt.Sprintf("other-%d", i)})
		}
	})
	if violations, _ := s.found(); !slices.Equal(violations, []string{surge.name}) {
		t.Errorf("a workload that only the leader wrote: violations %v", violations)
	}
	s.later()
	s.by("a.1", func() { s.pod(clone(3)) })
	if violations, _ := s.found(); !slices.Contains(violations, lease.name) {
		t.Errorf("long after another manager has taken the lease: violations %v", violations)
	}
	s = tell(t)
	clones(s)
	s.lease("b.1")
	s.later()
	s.lease("a.1")
	s.by("a.1", func() { s.pod(clone(0)) })
	if violations, known := s.found(); len(violations)+len(known) > 0 {
		t.Errorf("a manager that has the lease again: violations %v, known %v", violations, known)
	}
}

// The answer of a write that changes nothing names the revision of somebody else's write.
func TestAWriteThatChangesNothingIsNoAuthor(t *testing.T) {
	s := tell(t)
	clones(s)
	s.by("a.1", func() { s.pod(down(1)) })
	s.pod(going(0)) // by a user
	s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "PATCH", Begin: s.now.Add(time.Millisecond), Sent: true,
		End: s.now.Add(2 * time.Millisecond), Status: 200, Revision: s.revision, Path: "/api/v1/namespaces/x/pods/web-0"})
	if violations, _ := s.found(); len(violations) > 0 {
		t.Errorf("found %v", violations)
	}
}

// A write of a status that failed is not what marked the pod to be deleted.
func TestAWriteOfTheStatusIsNoAuthorOfAMark(t *testing.T) {
	s := tell(t)
	s.set("clonesets", "web", `"replicas":3,`+inPlacePolicy, "")
	s.pods("CloneSet", "web", "web-r1", 3)
	s.later()
	s.r.Requests = append(s.r.Requests, record.Request{Manager: "a.1", Verb: "PATCH", Begin: s.now, Sent: true,
		End: s.now.Add(2 * time.Millisecond), Status: 500, Path: "/api/v1/namespaces/x/pods/web-0/status"})
	marked := clone(0)
	marked.labels = `,"apps.kruise.io/specified-delete":"true"`
	s.pod(marked) // by a user
	if violations, _ := s.found(); len(violations) > 0 {
		t.Errorf("found %v", violations)
	}
}

// Also writes of objects without a namespace, of which no answer is known, have an author.
func TestObjectsAreKnownByTheirPath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/x/pods/p/status":                    "x/pods/p",
		"/api/v1/namespaces/x/pods":                             "x/pods",
		"/apis/apps.kruise.io/v1beta1/sidecarsets/logs/status":  "/sidecarsets/logs",
		"/apis/apps.kruise.io/v1beta1/namespaces/x/clonesets/w": "x/clonesets/w",
		"/api": "",
	} {
		if got := keyOf(path); got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
}
